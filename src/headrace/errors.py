"""Every error headrace raises on purpose.

One tree. Each class knows its exit code (for the command line), its HTTP status (for the server), a stable code for machines, and
carries one plain sentence that names the offending value and what to do. Only `cli/` and `serve/http` turn them into exits
and answers.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of the tree. `str(error)` is the sentence for people; `error.code` is for machines."""

    code: str = "internal"
    http_status: int = 500
    exit_code: int = 70
    retry_after_s: float | None = None


# --- what the operator got wrong: before the server runs ---------------------------------------------------------------------


class UsageError(HeadraceError):
    """A flag, file or value given by the operator does not work."""

    code, http_status, exit_code = "usage", 400, 64


class SettingError(UsageError):
    """A setting has an unknown name, a wrong type or a value out of bounds."""

    code = "bad_setting"


class RecipeError(UsageError):
    """A recipe cannot be read or contradicts itself."""

    code = "bad_recipe"


class ModelError(UsageError):
    """A model cannot be loaded, or does not fit its recipe."""

    code, exit_code = "bad_model", 65


class CaptureError(UsageError):
    """A folder is no capture, or cannot be read as one."""

    code, exit_code = "bad_capture", 65


class StorageError(HeadraceError):
    """A file could not be written: no room, no right, no folder."""

    code, exit_code = "storage", 74


class AssetError(HeadraceError):
    """A demonstration asset could not be fetched, or its checksum is wrong."""

    code, exit_code = "asset", 69


# --- what the client got wrong: this request only ----------------------------------------------------------------------------


class RequestError(HeadraceError):
    """The request cannot be served as it is."""

    code, http_status = "bad_request", 400


class NotFound(RequestError):
    """No such path or model."""

    code, http_status = "not_found", 404


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    code, http_status = "method_not_allowed", 405


class NotAcceptable(RequestError):
    """None of the media types in `Accept` can be produced."""

    code, http_status = "not_acceptable", 406


class SlowSender(RequestError):
    """The body did not arrive in time."""

    code, http_status = "body_timeout", 408


class BodyTooLarge(RequestError):
    """More bytes than `limits.max_body_bytes`."""

    code, http_status = "body_too_large", 413


class UnsupportedMedia(RequestError):
    """The bytes are no image format this server reads."""

    code, http_status = "unsupported_media", 415


class ImageError(RequestError):
    """The bytes claim to be an image and cannot be decoded."""

    code, http_status = "undecodable", 422


class ImageTooLarge(ImageError):
    """The header promises more pixels, or more memory, than the limits allow; nothing was allocated."""

    code = "image_too_large"


# --- what the server cannot do just now --------------------------------------------------------------------------------------


class Overloaded(HeadraceError):
    """The bounded queue is full."""

    code, http_status = "overloaded", 429
    retry_after_s = 1.0


class NotReady(HeadraceError):
    """Warming up, failed to warm up, or draining."""

    code, http_status = "not_ready", 503
    retry_after_s = 1.0


class DeadlineExceeded(HeadraceError):
    """Nobody waits for the answer any more."""

    code, http_status = "deadline_exceeded", 504


class ClientGone(HeadraceError):
    """The client closed the connection before the answer (logged and counted, never sent)."""

    code, http_status = "client_gone", 499


class InferenceFailed(HeadraceError):
    """The model raised on a batch whose images were prepared without error."""

    code, http_status = "inference_failed", 500


class InternalError(HeadraceError):
    """A fault of headrace itself; the log has the traceback."""

    code, http_status = "internal", 500
