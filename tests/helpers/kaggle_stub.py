"""A loopback server in the place of Kaggle's API and of Google's data host.

The real, unmodified kaggle package reaches it with ``KAGGLE_API_ENVIRONMENT=LOCALHOST`` (addresses under
``http://localhost``) and ``http_proxy`` set to it, so that request lines carry absolute addresses.
Plain files are served with Range, whole or cut off on purpose.
"""

import contextlib
import io
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
    r"/api/v1/(?:competitions\.CompetitionApiService|security\.OAuthService|users\.AccountService"
    r"|datasets\.DatasetApiService|blobs\.BlobApiService|kernels\.KernelsApiService)/(\w+)"
)
_LOG = "/api/v1/kernels/logs/stream/"
_LAST_MODIFIED = "Wed, 01 Nov 2023 00:00:00 GMT"


def clean_environment(monkeypatch, home) -> None:
    """Remove this machine's proxies and Kaggle credentials from the environment for a test."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("KAGGLE_", "TQDM_")):
            monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "VERBOSE", "VERBOSE_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))


def call_here(function, *arguments, hear=None, **_):
    """Call what imports kaggle here, each time anew: a process of its own takes most of a second."""
    for name in [name for name in sys.modules if name.split(".")[0] == "kaggle"]:
        del sys.modules[name]
    before = dict(os.environ)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            return function(*arguments)
    finally:
        for piece in said.getvalue().splitlines(keepends=True) if hear else ():
            hear(piece)
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
        hours: GPU hours of the account: used, and allowed a week.
        dataset: Number of the newest version of the dataset; 0 where there is none.
        packed: Names of the files of each version of the dataset.
        pushed: What was pushed as a notebook, the newest last.
        states: States of the notebook, one for each time that it is asked for; the last one stays. None where
            there is no notebook.
        failure: Why the notebook failed.
        log: Pieces of the notebook's log.
        output: Content of the files that the notebook left, by name.
        refusal: Why a notebook is not taken.
        newest: Release of the kaggle package that Kaggle names as the newest, if any.
        parts: How many requests for a file were answered with a part (206).
        authorization: Every Authorization header that was sent.
    """

    def __init__(self):
        self.files, self.cuts, self.sizes, self.answers = {}, {}, {}, {}
        self.progress, self.listed, self.remaining = ["PENDING", "COMPLETE"], True, 4
        self.submissions, self.uploads, self.ranges, self.calls = [], [], [], Counter()
        self.authorization, self.parts = set(), 0
        self.scored, self._opened = None, {}
        self.hours, self.dataset, self.packed = (2, 30), 0, []
        self.pushed, self.states, self.failure, self.refusal = [], None, None, None
        self.log, self.output, self.newest = [], {}, None
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
        if name in _OF_KERNELS:
            return _OF_KERNELS[name](self, request)
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


def _start_blob(stub, request):
    token = f"blob-{len(stub._opened)}"
    stub._opened[token] = request
    return {"token": token, "createUrl": f"http://localhost/upload/{token}"}


def _make_dataset(stub, request):
    files = request.get("body", request)["files"]
    stub.packed.append([stub._opened[file["token"]]["name"] for file in files])
    stub.dataset += 1
    return {"status": "ok", "url": "http://localhost/dataset", "error": ""}


def _quota(stub, _):
    times = [f"{hours * 3600}s" for hours in stub.hours]
    quota = {"timeUsed": times[0], "totalTimeAllowed": times[1]}
    return {"quotaRefreshTime": "2026-12-05T00:00:00Z", "gpuQuota": quota}


def _save_kernel(stub, request):
    if stub.refusal:
        return {"error": stub.refusal}
    stub.pushed.append(request)
    stub.states = stub.states or ["COMPLETE"]
    return {"ref": request["slug"], "url": "http://localhost/code", "versionNumber": 1, "error": ""}


def _kernel_status(stub, _):
    if stub.states is None:
        return 404
    state = stub.states.pop(0) if len(stub.states) > 1 else stub.states[0]
    return {"status": state, "failureMessage": stub.failure if state == "ERROR" else None}


def _list_output(stub, _):
    stub.files |= {f"/output/{name}": content for name, content in stub.output.items()}
    files = [{"fileName": name, "url": f"{stub.url}/output/{name}"} for name in stub.output]
    return {"files": files, "log": ""}


_OF_KERNELS = {
    "StartBlobUpload": _start_blob,
    "GetDatasetStatus": lambda stub, _: {"status": "READY"} if stub.dataset else 404,
    "GetDataset": lambda stub, _: {"currentVersionNumber": stub.dataset},
    "CreateDataset": _make_dataset,
    "CreateDatasetVersion": _make_dataset,
    "GetAcceleratorQuotaStatistics": _quota,
    "SaveKernel": _save_kernel,
    "GetKernelSessionStatus": _kernel_status,
    "ListKernelSessionOutput": _list_output,
}
"""Answers about datasets and notebooks, by the name of the call: JSON, or a status."""


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
            answer = self.stub.api(name, json.loads(body))
            if isinstance(answer, int):
                self._reply(answer, b"")
            else:
                self._json(200, answer)
        elif path.startswith(_LOG):
            self._json(200, [{"stream_name": "stdout", "data": line} for line in self.stub.log])
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
        newest = {"X-Kaggle-APIVersion": self.stub.newest} if self.stub.newest else {}
        self._reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"} | newest)

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
