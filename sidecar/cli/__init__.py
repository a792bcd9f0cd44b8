"""The command line: arguments in, lines and an exit status out."""
