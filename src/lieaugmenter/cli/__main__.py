"""``python -m lieaugmenter.cli``."""

from lieaugmenter.cli import main

if __name__ == "__main__":
    main()
