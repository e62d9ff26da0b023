"""A CUDA driver that is emulated on the host: `EmulatedDriver`, in place of NVIDIA's library.

Device memory is a reservation that the host may not read (`memory`); streams run their work late and in random order
(`streams`), under the eyes of somebody who knows what is ordered (`ordering`); kernels are the host's own code
(`modules`); captures become graphs (`captures`).
"""

from rushlight._backends.cuda.driver.emulated.driver import EmulatedDriver

__all__ = ["EmulatedDriver"]
