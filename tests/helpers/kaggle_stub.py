"""A loopback server in the place of Kaggle's API and of Google's data host.

The real, unmodified kaggle package reaches it with ``KAGGLE_API_ENVIRONMENT=LOCALHOST`` (addresses under
``http://localhost``) and ``http_proxy`` set to it, so that request lines carry absolute addresses.
Plain files are served with Range, whole or cut off on purpose.
"""

import json
import os
import re
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

DROP = "drop"
_API = re.compile(
    r"/api/v1/(?:competitions\.CompetitionApiService|security\.OAuthService|users\.AccountService)/(\w+)"
)
_LAST_MODIFIED = "Wed, 01 Nov 2023 00:00:00 GMT"


def clean_environment(monkeypatch, home) -> None:
    """Remove this machine's proxies and Kaggle credentials from the environment for a test."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("KAGGLE_", "TQDM_")):
            monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "VERBOSE", "VERBOSE_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))


def call_here(function, *arguments, **_):
    """Call what imports kaggle here, each time anew: a process of its own takes most of a second."""
    for name in [name for name in sys.modules if name.split(".")[0] == "kaggle"]:
        del sys.modules[name]
    before = dict(os.environ)
    try:
        return function(*arguments)
    finally:
        os.environ.clear()
        os.environ.update(before)


class KaggleStub:
    """What Kaggle would know and do; use it as a context manager.

    Attributes:
        files: Content by path, for example ``/data/a.tar``.
        cuts: By path, after how many bytes of the body to close the connection, one entry per request.
        sizes: By path, a Content-Length to claim instead of the true one.
        answers: By name of the API call (or path), what to do instead of answering, one entry per request:
            a status, a pair of status and JSON, or DROP.
        scored: The row that Kaggle is scoring, by default the one submitted last.
        progress: Status of that row at each listing; the last one stays.
        listed: Whether an accepted submission appears in the list.
        remaining: How many submissions are left today.
        submissions: Rows of the list, oldest first.
        uploads: Bodies that were uploaded.
        calls: Number of requests per API call or path.
        ranges: Range header of each GET of a file, None where there was none.
        parts: How many requests for a file were answered with a part (206).
        authorization: Every Authorization header that was sent.
    """

    def __init__(self):
        self.files, self.cuts, self.sizes, self.answers = {}, {}, {}, {}
        self.progress, self.listed, self.remaining = ["PENDING", "COMPLETE"], True, 4
        self.submissions, self.uploads, self.ranges, self.calls = [], [], [], Counter()
        self.authorization, self.parts = set(), 0
        self.scored, self._opened = None, {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": self}))

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, home) -> dict[str, str]:
        """Return what kaggle's environment must hold to talk to this server as the user ``me``."""
        return {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "http_proxy": self.url,
            "HOME": str(home),
            "KAGGLE_USERNAME": "me",
            "KAGGLE_KEY": "0123456789abcdef-secret",
        }

    def api(self, name: str, request: dict) -> dict:
        """Return Kaggle's answer to an API call."""
        if name == "StartSubmissionUpload":
            token = f"blob-{len(self._opened)}"
            self._opened[token] = request
            return {"token": token, "createUrl": f"http://localhost/upload/{token}"}
        if name == "CreateSubmission":
            if self.listed:
                opened = self._opened[request["blobFileTokens"]]
                self.scored = self.add(opened["fileName"], request.get("submissionDescription"), "PENDING")
            return {"message": "Successfully submitted to Predict AI Model Runtime", "ref": 1}
        if name == "GetSubmissionLimits":
            return {"numToday": 1, "numTotal": 1, "numAllowedNow": self.remaining}
        if name == "GenerateAccessToken":
            return {"token": "KGAT_refreshed-1", "expiresIn": 3600}
        if name == "IntrospectToken":
            return {"active": True, "username": "me"}
        assert name == "ListSubmissions", name
        if self.scored:
            status = self.progress.pop(0) if len(self.progress) > 1 else self.progress[0]
            self.scored["status"] = status
            if status == "COMPLETE":
                self.scored.update(publicScore="0.69400", privateScore="0.70500")
        return {"submissions": self.submissions[::-1]}

    def add(self, file_name: str, message: str, status: str, **scores) -> dict:
        """Put a submission on the list; return its row."""
        row = {"ref": 101 + len(self.submissions), "fileName": file_name, "description": message}
        self.submissions.append(row | {"status": status, "date": "2023-11-01T00:00:00Z"} | scores)
        return self.submissions[-1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: KaggleStub

    def _handle(self):
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = _API.fullmatch(path)
        name = call[1] if call else path
        self.stub.calls[name] += 1
        self.stub.authorization.add(self.headers.get("Authorization"))
        planned = self.stub.answers.get(name)
        if planned:
            self._fail(planned.pop(0))
        elif path.startswith("/upload/"):
            self.stub.uploads.append(body)
            self._reply(200, b"")
        elif name == "DownloadDataFiles":
            self._reply(302, b"", {"Location": "http://localhost/data/competition.zip"})
        elif call:
            self._json(200, self.stub.api(name, json.loads(body)))
        elif path in self.stub.files:
            self._file(path)
        else:
            self._reply(404, b"")

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    def _fail(self, answer):
        if answer == DROP:
            self.close_connection = True
            self.connection.close()
        elif isinstance(answer, tuple):
            self._json(*answer)
        else:
            self._reply(answer, b"")

    def _json(self, status, value):
        self._reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, path):
        stub, content = self.stub, self.stub.files[path]
        headers = {"Accept-Ranges": "bytes", "Last-Modified": _LAST_MODIFIED}
        asked = self.headers.get("Range")
        if self.command == "GET":
            stub.ranges.append(asked)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        size = stub.sizes.get(path, len(content))
        if start and start >= size:
            self._reply(416, b"", {"Content-Range": f"bytes */{size}"})
        elif asked:
            stub.parts += 1
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
            self._reply(206, content[start:], headers, path)
        else:
            self._reply(200, content, headers, path)

    def _reply(self, status, body, headers=None, path=None):
        size = self.stub.sizes.get(path, len(body))
        self.send_response(status)
        for name, value in ({"Content-Length": str(size)} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        cuts = self.stub.cuts.get(path)
        cut = cuts.pop(0) if cuts else None
        self.wfile.write(body[:cut])
        self.wfile.flush()
        if cut is not None or size != len(body):
            self.close_connection = True

    def log_message(self, *_):
        """Be silent."""
