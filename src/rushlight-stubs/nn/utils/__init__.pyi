"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.nn.utils import clip_grad as clip_grad
from rushlight.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from rushlight.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from rushlight.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from rushlight.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from rushlight.nn.utils.memory_format import convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format
from rushlight.nn.utils.memory_format import convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format
from rushlight.nn.utils import convert_parameters as convert_parameters
from rushlight.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from rushlight.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from rushlight.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from rushlight.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from rushlight.nn.utils import fusion as fusion
from rushlight.nn.utils.clip_grad import get_total_norm as get_total_norm
from rushlight.nn.utils import init as init
from rushlight.nn.utils import memory_format as memory_format
from rushlight.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from rushlight.nn.utils import parametrizations as parametrizations
from rushlight.nn.utils import parametrize as parametrize
from rushlight.nn.utils import prune as prune
from rushlight.nn.utils.spectral_norm import remove_spectral_norm as remove_spectral_norm
from rushlight.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from rushlight.nn.utils import rnn as rnn
from rushlight.nn.utils.init import skip_init as skip_init
from rushlight.nn.utils.spectral_norm import spectral_norm as spectral_norm
from rushlight.nn.utils import stateless as stateless
from rushlight.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from rushlight.nn.utils.weight_norm import weight_norm as weight_norm
