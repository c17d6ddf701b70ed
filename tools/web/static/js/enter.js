// The token leaves the address bar and the history; from here on the cookie speaks.
location.replace("/");
