"""What a symmetry is: generators, coefficients, elements. Tensors in, tensors out."""

from lieaugmenter.lie.basis import GeneratorBasis as GeneratorBasis
from lieaugmenter.lie.basis import block_mask as block_mask
from lieaugmenter.lie.elements import Elements as Elements
from lieaugmenter.lie.samplers import IntegerGrid as IntegerGrid
from lieaugmenter.lie.samplers import LearnableRange as LearnableRange
from lieaugmenter.lie.samplers import Normal as Normal
from lieaugmenter.lie.samplers import Sampler as Sampler
from lieaugmenter.lie.samplers import Uniform as Uniform
