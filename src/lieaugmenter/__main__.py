"""``python -m lieaugmenter``, and through torchrun ``torchrun … -m lieaugmenter``."""

from lieaugmenter.cli import main

if __name__ == "__main__":
    main()
