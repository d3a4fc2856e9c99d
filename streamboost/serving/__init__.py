"""A server around a live model: it predicts, learns and tells, and loses nothing.

In flow requests, in JSON or Arrow; out flow predictions, made by copies of the model that never wait for learning.
:func:`serve` runs it from a directory, :func:`create_app` is the application alone, for a server of one's own.
"""

from streamboost.errors import require

for package in ("starlette", "uvicorn", "prometheus_client"):
    require(package, extra="serve", by="streamboost.serving")

from streamboost.serving.app import create_app  # noqa: E402 - only where the extra is installed
from streamboost.serving.auth import Tokens, read_tokens  # noqa: E402
from streamboost.serving.errors import Limits  # noqa: E402
from streamboost.serving.monitoring import ScoreKeeper  # noqa: E402
from streamboost.serving.open_model import open_live  # noqa: E402
from streamboost.serving.server import serve  # noqa: E402

__all__ = ["Limits", "ScoreKeeper", "Tokens", "create_app", "open_live", "read_tokens", "serve"]
