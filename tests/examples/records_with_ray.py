"""Use Ray to record each trace in object storage; write the records into the folder `records`.

Run `pip install '.[ray]' gcsfs` on all nodes, then run this file with a pattern of traces, such as
`gs://…/*.xplane.pb`. Then `compute-breakdown records --mode spread` joins the records.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import fsspec
import ray


@ray.remote(max_retries=2, retry_exceptions=True)
def record(file):
    name = os.path.basename(file.path)
    with tempfile.TemporaryDirectory() as folder:
        file.fs.get(file.path, f"{folder}/{name}")
        return subprocess.check_output(["compute-breakdown", name, "--mode", "record"], cwd=folder)


os.makedirs("records", exist_ok=True)
files = fsspec.open_files(sys.argv[1])
for file, job in zip(files, [record.remote(file) for file in files], strict=True):
    try:
        answer = ray.get(job)
    except Exception as error:
        # If all retries fail, the command's output contains the reason.
        answer = getattr(error, "stdout", b"")
    host = os.path.basename(file.path).split(".xplane.pb")[0]
    with open(f"records/{host}.json", "wb") as out:
        out.write(answer)
