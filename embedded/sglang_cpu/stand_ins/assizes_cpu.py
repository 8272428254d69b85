"""Run at every start of this environment's interpreter: has SGLang take the machine for one without accelerators.

SGLang imports torchvision, whose compiled operators fit only the torch that it was built with. Next to a CPU build of
torch they do not load, and torchvision's Python half then stops at registering a fake kernel for `torchvision::nms`.
Declaring the two operators just before torchvision is imported is enough, since SGLang calls neither.

OpenMP's threads wait asleep: spinning, they burn a core for nothing whenever something else needs one too.
"""

import os
import sys

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # OpenMP reads it when torch loads it, which is later


class _BeforeTorchvision:
    """A finder that finds nothing: it only notices that torchvision is about to be imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            if torch.version.cuda is None:  # a CUDA build loads torchvision's own operators
                library = torch.library.Library("torchvision", "FRAGMENT")
                for operator in ("nms", "qnms"):
                    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                sys.modules[__name__].library = library  # what a Library defines is gone when it is


sys.meta_path.insert(0, _BeforeTorchvision())
