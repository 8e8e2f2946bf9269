"""ClickHouse errors: code, name and HTTP status, and the bytes a client reads them from.

Source of the status table: ClickHouse `src/Server/HTTP/exceptionCodeToHTTPStatus.cpp`.
"""

from __future__ import annotations

import errno
import re

# An error in the data of an INSERT comes wrapped in itself: code before code, name after name.
_SHAPE = re.compile(r"Code: (\d+)\. DB::Exception: (?:Code: \1\. DB::Exception: )*(.*)", re.DOTALL)
_NAME = re.compile(r"(?:\.? ?\(([A-Z][A-Z0-9_]+)\)(?: \(version [^)]*\))?)+\s*$")

_STATUS_BY_NAME: dict[str, int] = (
    {
        "REQUIRED_PASSWORD": 401,
        "HTTP_LENGTH_REQUIRED": 411,
        "QUERY_IS_TOO_LARGE": 413,
        "UNSUPPORTED_MEDIA_TYPE": 415,
        "NOT_IMPLEMENTED": 501,
        "TIMEOUT_EXCEEDED": 408,
    }
    | dict.fromkeys(
        (
            "UNKNOWN_USER",
            "WRONG_PASSWORD",
            "AUTHENTICATION_FAILED",
            "SET_NON_GRANTED_ROLE",
            "ACCESS_DENIED",
        ),
        403,
    )
    | dict.fromkeys(
        (
            "BAD_ARGUMENTS",
            "CANNOT_COMPILE_REGEXP",
            "CANNOT_PARSE_TEXT",
            "CANNOT_PARSE_ESCAPE_SEQUENCE",
            "CANNOT_PARSE_QUOTED_STRING",
            "CANNOT_PARSE_DATE",
            "CANNOT_PARSE_DATETIME",
            "CANNOT_PARSE_NUMBER",
            "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING",
            "CANNOT_PARSE_IPV4",
            "CANNOT_PARSE_IPV6",
            "CANNOT_PARSE_UUID",
            "CANNOT_PARSE_INPUT_ASSERTION_FAILED",
            "DUPLICATE_COLUMN",
            "ILLEGAL_COLUMN",
            "THERE_IS_NO_COLUMN",
            "UNKNOWN_ELEMENT_IN_AST",
            "UNKNOWN_TYPE_OF_AST_NODE",
            "TOO_DEEP_AST",
            "TOO_BIG_AST",
            "UNEXPECTED_AST_STRUCTURE",
            "SYNTAX_ERROR",
            "INCORRECT_DATA",
            "TYPE_MISMATCH",
            "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE",
        ),
        400,
    )
    | dict.fromkeys(
        (
            "UNKNOWN_TABLE",
            "UNKNOWN_FUNCTION",
            "UNKNOWN_IDENTIFIER",
            "UNKNOWN_TYPE",
            "UNKNOWN_STORAGE",
            "UNKNOWN_DATABASE",
            "UNKNOWN_SETTING",
            "UNKNOWN_DIRECTION_OF_SORTING",
            "UNKNOWN_AGGREGATE_FUNCTION",
            "UNKNOWN_FORMAT",
            "UNKNOWN_DATABASE_ENGINE",
            "UNKNOWN_TYPE_OF_QUERY",
            "UNKNOWN_ROLE",
        ),
        404,
    )
    | dict.fromkeys(("SOCKET_TIMEOUT", "CANNOT_OPEN_FILE", "CANNOT_SCHEDULE_TASK"), 503)
)


class ServerError(Exception):
    """A failure as ClickHouse reports it: numeric `code`, symbolic `name`, text."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status the real server answers with; 500 where it names none."""
        return _STATUS_BY_NAME.get(self.name, 500)

    @property
    def text(self) -> str:
        """`Code: 60. DB::Exception: ... (UNKNOWN_TABLE)`, the body of the answer."""
        return f"Code: {self.code}. DB::Exception: {self.message} ({self.name})"

    @classmethod
    def from_engine(cls, error: BaseException) -> ServerError:
        """Read code and name from an engine's exception; without one: UNKNOWN_EXCEPTION."""
        shape = _SHAPE.search(str(error))
        if shape is None:
            return cls(1002, "UNKNOWN_EXCEPTION", str(error) or type(error).__name__)
        message = shape[2].strip()
        name = _NAME.search(message)
        if name is None:
            return cls(int(shape[1]), "UNKNOWN_EXCEPTION", message)
        return cls(int(shape[1]), name[1], message[: name.start()].rstrip())

    @classmethod
    def from_os(cls, error: OSError) -> ServerError:
        """A file of our own could not be written: NOT_ENOUGH_SPACE, or what the system says."""
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return cls(243, "NOT_ENOUGH_SPACE", str(error))
        return cls(75, "CANNOT_WRITE_TO_FILE_DESCRIPTOR", str(error))


def in_stream(error: ServerError, tag: str) -> bytes:
    """The block that ends a broken stream whose 200 is already sent.

    Same layout as the server since 25.11: the tag was announced in `X-ClickHouse-Exception-Tag`, so
    result bytes that happen to look like an error cannot be taken for one.
    """
    text = error.text.encode()
    return b"\r\n__exception__\r\n%b\r\n%b\n%d %b\r\n__exception__\r\n" % (
        tag.encode(),
        text,
        len(text),
        tag.encode(),
    )
