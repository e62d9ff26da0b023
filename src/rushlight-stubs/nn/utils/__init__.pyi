"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.nn.utils import clip_grad as clip_grad
from rushlight.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from rushlight.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from rushlight.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from rushlight.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from rushlight.nn.utils import convert_parameters as convert_parameters
from rushlight.nn.utils.clip_grad import get_total_norm as get_total_norm
from rushlight.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from rushlight.nn.utils import rnn as rnn
from rushlight.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
