"""`SummaryWriter`: what happens in training, in files that TensorBoard shows."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rushlight.utils.tensorboard import embedding, graphs, images, summaries
from rushlight.utils.tensorboard.summaries import proto

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes events into one file of a folder, from a thread of its own."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        module = proto("summary.writer.event_file_writer")
        self.event_writer = module.EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Add an `Event`, at a step and a time (now by default)."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Add a `Summary`."""
        self.add_event(proto("compat.proto.event_pb2").Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[Any, Any], walltime: float | None = None) -> None:
        """Add a graph, and the statistics of a run of it."""
        pb = proto("compat.proto.event_pb2")
        graph, statistics = graph_profile
        self.add_event(pb.Event(graph_def=graph.SerializeToString()), None, walltime)
        tagged = pb.TaggedRunMetadata(tag="step1", run_metadata=statistics.SerializeToString())
        self.add_event(pb.Event(tagged_run_metadata=tagged), None, walltime)

    def add_onnx_graph(self, graph: Any, walltime: float | None = None) -> None:
        """Add a graph without statistics."""
        self.add_event(proto("compat.proto.event_pb2").Event(graph_def=graph.SerializeToString()), None, walltime)

    def flush(self) -> None:
        """Write what waits to the disk."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Go on in a new file, if this one is closed."""
        self.event_writer.reopen()


class SummaryWriter:
    """Writes scalars, pictures, histograms, graphs... into a folder that `tensorboard --logdir` shows.

    The folder is `runs/TIME_HOST` with `comment` at its end unless `log_dir` is given; with `purge_step` TensorBoard
    forgets what came at and after that step in earlier files.  Needs the extra `tensorboard`.  Values are numbers,
    tensors or NumPy arrays.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            log_dir = os.path.join(
                "runs", datetime.now().strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment
            )
        self.log_dir, self.purge_step = log_dir, purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()
        self.default_bins = summaries.default_bins()
        self._projector_config: Any = None

    def _get_file_writer(self) -> FileWriter:
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._writer(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                pb, step, self.purge_step = proto("compat.proto.event_pb2"), self.purge_step, None
                self.file_writer.add_event(pb.Event(step=step, file_version="brain.Event:2"))
                self.file_writer.add_event(pb.Event(step=step, session_log=pb.SessionLog(status=pb.SessionLog.START)))
        return self.file_writer

    def _writer(self, folder: Any) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, summary: Any, step: Any = None, walltime: float | None = None) -> None:
        self._get_file_writer().add_summary(summary, step, walltime)

    def get_logdir(self) -> Any:
        """The folder."""
        return self.log_dir

    # ***** numbers *****

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number; AssertionError for several."""
        self._add(summaries.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Several numbers in one chart: each goes into a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            place = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if place not in self.all_writers:
                self.all_writers[place] = self._writer(place)
            self.all_writers[place].add_summary(summaries.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """A whole tensor."""
        self._add(summaries.tensor(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values are spread; `bins` are bounds, a number of them, or the name of one of NumPy's rules."""
        bins = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram whose numbers are known; ValueError unless there are as many limits as counts."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        limits, counts = ([float(v) for v in part] for part in (bucket_limits, bucket_counts))
        self._add(summaries.histogram_raw(tag, min, max, num, sum, sum_squares, limits, counts), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Any,
        metric_dict: Any,
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Hyperparameters of a run and what came of them, in a folder of their own; TypeError unless both are dicts."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        parts = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            for part in parts:
                writer._add(part, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    # ***** pictures, sounds, texts *****

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes, or numbers in [0, 1]."""
        self._add(images.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures in one."""
        self._add(images.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """A picture with frames: (count, 4) numbers, x and y of two corners each."""
        labels = [labels] if isinstance(labels, str) else labels
        if labels is not None and len(labels) != box_tensor.shape[0]:
            labels = None
        self._add(
            images.image_with_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels), global_step, walltime
        )

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib, or a list of them."""
        formats = "NCHW" if isinstance(figure, list) else "CHW"
        self.add_image(tag, images.figure_array(figure, close), global_step, walltime, formats)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Moving pictures, (count, time, channels, height, width); needs the package moviepy."""
        self._add(images.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound: one channel, numbers in [-1, 1]."""
        self._add(summaries.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, which TensorBoard reads as Markdown."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    # ***** models *****

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The operators that one call of the model runs (in evaluation mode), in the boxes of their modules."""
        self._get_file_writer().add_graph(graphs.model_graph(model, input_to_model, verbose))

    def add_onnx_graph(self, prototxt: str) -> None:
        """The graph of an ONNX file; needs the package onnx."""
        self._get_file_writer().add_onnx_graph(graphs.onnx_graph(prototxt))

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Points in many dims, (count, dims), for the projector: with their names, and with pictures (count, channels,
        height, width).
        """
        folder = self._get_file_writer().get_logdir()
        self._projector_config = embedding.write_embedding(
            folder, self._projector_config, mat, metadata, label_img, global_step, tag, metadata_header
        )

    # ***** curves and meshes *****

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision and recall of predictions in [0, 1] for labels 0 and 1, at up to 127 thresholds."""
        self._add(summaries.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A precision-recall curve whose numbers are known."""
        rows = (
            true_positive_counts,
            false_positive_counts,
            true_negative_counts,
            false_negative_counts,
            precision,
            recall,
        )
        self._add(summaries.pr_curve_raw(tag, rows, num_thresholds), global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show several scalars in one chart."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show a scalar between two others; AssertionError unless there are three."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Which scalars stand in which chart: {category: {title: ["Multiline" or "Margin", [tags]]}}; to be called
        once.
        """
        self._add(summaries.custom_scalars(layout))

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Points (batch, count, 3) in space, with colours in [0, 255] and triangles (batch, count, 3) of their numbers."""
        self._add(summaries.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    # ***** the end *****

    def flush(self) -> None:
        """Write what waits to the disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write what waits, and close the files; a later call opens new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self.close()
