"""What a broker's clients share: who is there, what groups subscribe to, who holds a queue, how far all consumed."""
