"""Test which files a PROFILE selects, and the answer if no file matches."""

from __future__ import annotations

import gzip
from unittest import mock

from _breakdown.pipeline import folders
from tests import harness
from tests.builders.damaged import SMALL, RobustnessTest, run
from tests.builders.xspace import Plane, Space, encode

RUNS = "plugins/profile"


class Paths(RobustnessTest):
    def assert_absent(self, outcome: harness.Outcome, reason: str) -> None:
        self.assertEqual(outcome.object.get("reason"), reason, outcome.object)

    def test_missing_path_is_an_error_in_every_mode(self) -> None:
        self.write("plain", SMALL)
        options = {
            "page": ("--out", str(self.folder / "p.html")),
            "export": ("--out", str(self.folder / "p.db")),
            "compare": ("--baseline", str(self.folder / "plain")),
        }
        for profile in ("", "plain/below", "nowhere.json.gz"):
            path = str(self.folder / profile) if profile else profile
            for mode in harness.ALL_MODES:
                with self.subTest(profile=profile, mode=mode):
                    outcome = run(path, mode, *options.get(mode, ()))
                    self.assert_absent(outcome, "no_such_path")
                    self.assertEqual(
                        outcome.object["detail"], f"{path} does not exist; check the path"
                    )

    def test_url_is_rejected_with_advice(self) -> None:
        path = "gs://bucket/run/h.xplane.pb"
        outcome = run(path)
        self.assert_absent(outcome, "no_such_path")
        detail = f"{path} is a URL; copy the file to a local path, or pipe it in and pass -"
        self.assertEqual(outcome.object["detail"], detail)

    def test_error_answer_for_a_folder_without_a_trace_suggests_a_nearby_trace(self) -> None:
        given = self.folder / "given"
        given.mkdir()
        outcome = run(given)
        self.assert_absent(outcome, "no_xplane_pb")
        nothing = outcome.object["detail"]
        # The error answer suggests a trace in a nearby folder.
        self.write(f"given/logs/{RUNS}/2024_01_01/a.xplane.pb", SMALL)
        detail = run(given).object["detail"]
        self.assertTrue(detail.startswith(f"{nothing}; pass "), detail)
        self.assertIn("logs", detail.removeprefix(nothing))

    def test_newest_run_with_a_trace_is_used_and_noted(self) -> None:
        self.write(f"{RUNS}/2024_01_01/a.xplane.pb", SMALL)
        # A note about the only run would say nothing new.
        self.assertFalse([text for text in run(self.folder).object["notes"] if "run" in text])
        self.write(f"{RUNS}/2023_01_01/b.xplane.pb", SMALL)
        # Files in the folder of runs, and runs without a trace, are skipped.
        self.write(f"{RUNS}/2025_01_01/trace.json.gz", b"")
        (self.folder / RUNS / "2026_01_01").mkdir()
        self.write(f"{RUNS}/2027_01_01", b"no folder")
        for path in (self.folder, self.folder / RUNS):
            fields = run(path).object
            self.assertEqual(fields["xplane_file"], "a.xplane.pb")
            self.assertIn(
                "using run 2024_01_01, the last by name with a trace", str(fields["notes"])
            )

    def test_run_that_cannot_be_listed_is_skipped_with_a_note(self) -> None:
        for name in ("2024_01_01", "2025_01_01", "2026_01_01"):
            self.write(f"{RUNS}/{name}/host.xplane.pb", SMALL)
        list_files = folders.files_in
        unlistable = ["2024_01_01", "2026_01_01"]

        def files_in(folder: str) -> dict[str, str]:
            if folder.endswith(tuple(unlistable)):
                raise PermissionError(13, "Permission denied", folder)
            return list_files(folder)

        with mock.patch("_breakdown.pipeline.folders.files_in", files_in):
            notes = run(self.folder / RUNS).object["notes"]
            skipped = (
                "run 2026_01_01 is skipped, because its folder cannot be listed: Permission denied"
            )
            self.assertEqual(notes[0], skipped)
            self.assertIn("using run 2025_01_01, the last by name with a trace", str(notes))
            # If every run is skipped, one of them could contain the trace, so this is an error.
            unlistable.append("2025_01_01")
            self.assert_absent(run(self.folder / RUNS), "unreadable_xplane_pb")

    def test_first_readable_host_is_used(self) -> None:
        self.write("a.xplane.pb", SMALL[:-1])
        self.write("b.xplane.pb", encode(Space([Plane("/host:CPU")])))
        # A host's plain file takes precedence over its gzipped file.
        self.write("c.xplane.pb.gz", b"broken")
        self.write("c.xplane.pb", SMALL)
        fields = run(self.folder).object
        self.assertEqual(fields["xplane_file"], "c.xplane.pb")
        self.assertTrue(any("a.xplane.pb: byte 0" in note for note in fields["notes"]), fields)
        self.assert_unreadable(run(self.folder, "summary", "--host", "a"), 0)
        self.assert_absent(run(self.folder, "summary", "--host", "b"), "device_not_found")
        missing = run(self.folder, "summary", "--host", "d")
        self.assert_absent(missing, "host_not_found")
        self.assertEqual(missing.object["available_hosts"], ["a", "b", "c"])
        for name in ("c.xplane.pb", "c.xplane.pb.gz"):
            (self.folder / name).unlink()
        absent = run(self.folder)
        self.assert_absent(absent, "device_not_found")
        self.assertTrue(any("a.xplane.pb" in note for note in absent.object["notes"]))
        self.write("b.xplane.pb", b"\0")
        self.assert_unreadable(run(self.folder), 0)

    def test_hosts_are_sorted_by_name_without_the_file_suffix(self) -> None:
        for name in ("a-1.xplane.pb", "a.xplane.pb.gz", "a.b.xplane.pb"):
            self.write(name, gzip.compress(SMALL) if name.endswith(".gz") else SMALL)
        self.assertEqual(run(self.folder).object["xplane_file"], "a.xplane.pb.gz")
        missing = run(self.folder, "summary", "--host", "z").object
        self.assertEqual(missing["available_hosts"], ["a", "a-1", "a.b"])
