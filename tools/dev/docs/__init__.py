"""The documentation as a site: its pages' places, and those that are made from the code when it is built."""
