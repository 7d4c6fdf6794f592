"""Files of every source by hand, one module a source: what readers are tested on. Nothing in here comes from opspan.

    from builders import nsys
    path = nsys.run(tmp_path / "a.sqlite", "2026")

`capture_units` goes the other way: it decodes a capture, to judge those who write one.
"""
