"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from rushlight.distributed.elastic.rendezvous.api import RendezvousHandlerRegistry as _RendezvousHandlerRegistry

from rushlight._distributed.launch.rounds import RendezvousClosedError as RendezvousClosedError
from rushlight._distributed.launch.rounds import RendezvousConnectionError as RendezvousConnectionError
from rushlight._distributed.launch.rounds import RendezvousError as RendezvousError
from rushlight._distributed.launch.rounds import RendezvousGracefulExitError as RendezvousGracefulExitError
from rushlight.distributed.elastic.rendezvous.api import RendezvousHandler as RendezvousHandler
from rushlight.distributed.elastic.rendezvous.api import RendezvousHandlerRegistry as RendezvousHandlerRegistry
from rushlight.distributed.elastic.rendezvous.api import RendezvousInfo as RendezvousInfo
from rushlight.distributed.elastic.rendezvous.api import RendezvousParameters as RendezvousParameters
from rushlight._distributed.launch.rounds import RendezvousStateError as RendezvousStateError
from rushlight.distributed.elastic.rendezvous.api import RendezvousStoreInfo as RendezvousStoreInfo
from rushlight._distributed.launch.rounds import RendezvousTimeoutError as RendezvousTimeoutError
from rushlight.distributed.elastic.rendezvous import api as api
from rushlight.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic_rendezvous
from rushlight.distributed.elastic.rendezvous import endpoints as endpoints
from rushlight.distributed.elastic.rendezvous import registry as registry
rendezvous_handler_registry: _RendezvousHandlerRegistry
