"""The zoo: supervised tasks whose Lie algebra is known, to measure discovery on."""
