"""What clients' frames say and how answers are made of them: the compiled parser, words, forms."""
