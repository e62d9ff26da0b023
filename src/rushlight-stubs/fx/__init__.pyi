"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from rushlight.fx._symbolic_trace import PHBase as _PHBase

from rushlight.fx.codegen import CodeGen as CodeGen
from rushlight.fx.graph import Graph as Graph
from rushlight.fx.graph_module import GraphModule as GraphModule
from rushlight.fx.interpreter import Interpreter as Interpreter
from rushlight.fx.node import Node as Node
PH: _PHBase
from rushlight.fx.proxy import Proxy as Proxy
from rushlight.fx._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
from rushlight.fx._symbolic_trace import Tracer as Tracer
from rushlight.fx.interpreter import Transformer as Transformer
from rushlight.fx import annotate as annotate
from rushlight.fx import codegen as codegen
from rushlight.fx import experimental as experimental
from rushlight.fx import graph as graph
from rushlight.fx import graph_module as graph_module
from rushlight.fx.node import has_side_effect as has_side_effect
from rushlight.fx import immutable_collections as immutable_collections
from rushlight.fx import interpreter as interpreter
from rushlight.fx.node import map_arg as map_arg
from rushlight.fx import node as node
from rushlight.fx import operator_schemas as operator_schemas
from rushlight.fx import passes as passes
from rushlight.fx import proxy as proxy
from rushlight.fx.subgraph_rewriter import replace_pattern as replace_pattern
from rushlight.fx import subgraph_rewriter as subgraph_rewriter
from rushlight.fx._symbolic_trace import symbolic_trace as symbolic_trace
from rushlight.fx import tensor_type as tensor_type
from rushlight.fx import traceback as traceback
from rushlight.fx._symbolic_trace import wrap as wrap
