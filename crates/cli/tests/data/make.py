"""Makes the test files in this folder with lz4, numpy, pandas, polars and pyarrow from PyPI."""

import base64
import bz2
import gzip
import io
import lzma
import zipfile
from datetime import date, datetime, time, timezone
from decimal import Decimal

import lz4.frame
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pyarrow.parquet.encryption

city = ["oslo", "rome", "oslo", "rome", "oslo", "oslo"]
price = [1.5, None, -2.0, 8.0, None, 0.25]
table = pa.table({
    "city": city,
    "kind": pa.array(["a", "b", "a", "a", "b", "b"]).dictionary_encode(),
    "price": pa.array(price, pa.float64()),
    "single": pa.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], pa.float32()),
    "half": pa.array(np.arange(6, dtype=np.float16)),
    "count": pa.array([3, 1, 4, 1, 5, 9], pa.int32()),
    "large": pa.array([2**63, 1, 2, 3, 4, 5], pa.uint64()),
    "sold": [True, False, True, True, None, False],
    "day": pa.array([1, 2, 3, 4, 5, 6], pa.date32()),
})

pa.parquet.write_table(table, "snappy.parquet", compression="snappy", row_group_size=4)
table.drop(["half"]).to_pandas().to_parquet("pandas.parquet", compression="gzip")
pl.from_arrow(table.select(["city", "price", "count"])).write_parquet("polars.parquet", compression="zstd")
pa.parquet.write_table(table.select(["count"]), "lz4.parquet", compression="lz4")
pa.feather.write_feather(table, "lz4.feather", compression="lz4")
pa.feather.write_feather(table, "zstd.arrow", compression="zstd")
with pa.ipc.new_stream("stream.arrows", table.schema) as stream:
    for batch in table.to_batches(max_chunksize=4):
        stream.write_batch(batch)
small = pa.table({"count": table["count"], "price": pa.array([1.5, 2, 3, 4, 5, 6], pa.float64())})
# The format before Arrow 0.15.
legacy = pa.ipc.IpcWriteOptions(use_legacy_format=True)
with pa.ipc.new_stream("legacy.arrows", small.schema, options=legacy) as stream:
    stream.write_table(small)

pa.parquet.write_table(small.select(["count"]), "brotli.parquet", compression="brotli")
pa.parquet.write_table(small, "partly_brotli.parquet", compression={"count": "snappy", "price": "brotli"})


class Keys(pyarrow.parquet.encryption.KmsClient):
    """Leaves keys unencrypted."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return base64.b64encode(key)

    def unwrap_key(self, key, _):
        return base64.b64decode(key)


for name, footer_is_plain in [("encrypted", False), ("encrypted_column", True)]:
    encryption = pyarrow.parquet.encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["count"]}, plaintext_footer=footer_is_plain
    )
    factory = pyarrow.parquet.encryption.CryptoFactory(Keys)
    properties = factory.file_encryption_properties(pyarrow.parquet.encryption.KmsConnectionConfig(), encryption)
    pa.parquet.write_table(small, f"{name}.parquet", compression="none", encryption_properties=properties)

numbers = np.array([3, -1, 4, 1, 5], dtype=np.int32)
np.savez("stored.npz", weights=numbers.astype(np.float64) / 2, bias=numbers)
np.savez_compressed("compressed.npz", numbers)
for name, array in [
    ("big_f8", (numbers / 4).astype(">f8")),
    ("big_i2", numbers.astype(">i2")),
    ("big_f2", (numbers / 4).astype(">f2")),
    ("bool", numbers > 1),
]:
    np.save(f"{name}.npy", array)

text = pd.DataFrame({"city": city, "price": price}).to_csv(index=False, na_rep="NA")
# Two gzip members, as from `cat a.gz b.gz`.
half = text.index("\n", 20) + 1
with open("members.csv.gz", "wb") as file:
    file.write(gzip.compress(text[:half].encode(), mtime=0) + gzip.compress(text[half:].encode(), mtime=0))
with open("frame.csv.zst", "wb") as file:
    file.write(pa.compress(text.encode(), "zstd", asbytes=True))
numpy_file = io.BytesIO()
np.save(numpy_file, numbers)
with open("array.npy.gz", "wb") as file:
    file.write(gzip.compress(numpy_file.getvalue(), mtime=0))

with zipfile.ZipFile("no_arrays.zip", "w") as archive:
    archive.writestr(zipfile.ZipInfo("xl/workbook.xml"), "<workbook/>")
    archive.writestr(zipfile.ZipInfo("xl/styles.xml"), "<styleSheet/>")

# Two parts each, as those tools append them.
halves = [b"x,y\n1,2\n", b"3,4\n5,6\n"]
for name, compress in [("bz2", bz2.compress), ("xz", lzma.compress), ("lz4", lz4.frame.compress)]:
    with open(f"parts.csv.{name}", "wb") as file:
        file.write(b"".join(compress(half) for half in halves))
with zipfile.ZipFile("one.zip", "w", zipfile.ZIP_DEFLATED) as file:
    file.writestr("folder/", b"")
    file.writestr("folder/parts.csv", b"".join(halves))

instants = pa.table({
    "x": [1, 2, 4, 8],
    "day": pa.array([date(2024, 2, 29), date(1969, 12, 31), None, date(2024, 2, 29)]),
    "time": pa.array([time(9, 5, 0, 250000), time(9, 5), time(9, 5), None], pa.time64("us")),
    "local": pa.array([datetime(2024, 2, 29, 9, 5), datetime(1950, 1, 1)] * 2, pa.timestamp("ms")),
    "utc": pa.array([datetime(2024, 2, 29, 9, 5, tzinfo=timezone.utc)] * 4, pa.timestamp("ns", "Europe/Oslo")),
    "decimal": pa.array([Decimal("10.50"), Decimal("-9.75"), Decimal("10.50"), None], pa.decimal128(10, 2)),
})
pa.parquet.write_table(instants, "instants.parquet")
pa.feather.write_feather(instants, "instants.arrow", compression="uncompressed")
