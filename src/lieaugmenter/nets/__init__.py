"""Plain predictors: networks that know nothing of any symmetry."""

from lieaugmenter.nets.cnn import CNN as CNN
from lieaugmenter.nets.mlp import MLP as MLP
