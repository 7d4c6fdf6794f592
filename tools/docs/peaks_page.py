"""Makes the text of docs/peaks.md, which lists the peak rates of devices that their makers state."""

from __future__ import annotations

from opspan.analysis.peak_table import TABLE, TYPES

_HEAD = """\
# Peaks of devices

`opspan flops` divides by these figures: TFLOPS (TOPS for int8) by type, dense, and the bandwidth of the memory in
TB/s. Data sheets give most of them with structured sparsity, which doubles them. They are those of matrix units where a
device has them, also for fp64 and fp32, and those with sums in fp32 where others are faster. A type without a figure is
not published, or sources differ; ops of that type have no share of a peak.

A device is found by its name in the trace. `--peak NAME` takes one of this page; `--peak TYPE=FIGURE` and
`--peak bandwidth=FIGURE` come before all others. A bandwidth that the tool itself reports comes before that of this
page. A trace without work on devices is compared with the [processor](host.md#peaks-of-processors), as it was measured.

- **A slice is not the card.** Of a slice of MIG (`... MIG 1g.10gb`), of a partition of an AMD card and of a stack of a
  Max 1550 the operations are scaled by the multiprocessors that the file gives it, and the bandwidth is not known.
  Without their number nothing is known of a slice. Virtual GPUs (`GRID ...`, `A40-8Q`) share a card by time, so nothing
  is known of them.
- **A device that is described under another number.** torch.profiler on ROCm writes the work of device 2 beside a
  description of device 0, as programs see it (`HIP_VISIBLE_DEVICES`). Where no device that was used is described, and
  all descriptions name one model, the devices that were used are of that model.
- **Measured**: products on an H100 SXM reached 49% (int8) to 94% (fp64) of these figures, and none exceeded one
  ([figures.md](figures.md#on-an-h100)).
- **What was looked up again**, in November 2026: A40, L40 and L40S agree with their maker's table or copies of it at
  sellers. B200, B300, H100 SXM, Gaudi 2 (bf16, bandwidth), Gaudi 3, H20, MI350X, MI355X and A800 (its operations; its
  bandwidth was not found) agree, rounded, with what others than their makers write of them; no document of the maker
  was seen. No document at all was found for H800 and A10G. So of all but A40, L40 and L40S the figures are **not
  confirmed**. The others were not looked up again.
- **Not here**: MI308X, for no source of AMD's has its figures, and others differ by a factor of ten; say `--peak`.
"""
_TITLES = ("Device", "Units", *TYPES, "TB/s", "Source")


def text() -> str:
    rows = []
    for _, peaks in TABLE:
        figures = [f"{peaks.flops[type_] / 1e12:,.5g}" if type_ in peaks.flops else "" for type_ in TYPES]
        bandwidth = f"{(peaks.bandwidth or 0) / 1e12:.4g}"
        rows.append((peaks.name, str(peaks.units or ""), *figures, bandwidth, peaks.source))
    lines = [f"| {' | '.join(row)} |" for row in (_TITLES, tuple("---" for _ in _TITLES), *rows)]
    return "\n".join((_HEAD, *lines, ""))
