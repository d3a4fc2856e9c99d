"""Dates as numbers, against the calendar of the standard library; one by one as in a chunk, and in every container."""

import copy
import itertools
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from streamboost.features.dates import PARTS, calendar_parts, seconds_of_texts
from streamboost.features.encoder import Encoder

NAN = float("nan")
EPOCH = datetime(1970, 1, 1)


def with_parts(X, **options):
    return Encoder(date_parts=True).encode(X, **options)


@given(moment=st.datetimes())
def test_parts_are_those_of_the_standard_librarys_calendar(moment):
    seconds = (moment.replace(microsecond=0) - EPOCH).total_seconds()
    hour = moment.hour + moment.minute / 60 + moment.second / 3600
    found = calendar_parts(np.array([seconds]))[0]
    assert found[1:].tolist() == [moment.weekday(), moment.day, moment.timetuple().tm_yday]
    assert found[0] == pytest.approx(hour, abs=1e-9)


@given(seconds=st.floats())
def test_parts_stay_in_their_ranges_whatever_number_is_taken_for_a_date(seconds):
    [parts] = calendar_parts(np.array([seconds]))
    assert np.isnan(parts).all() or (all(np.array([0, 0, 1, 1]) <= parts) and all(parts <= [24, 6, 31, 366]))


@given(
    moment=st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)),
    digits=st.sampled_from([None, 0, 1, 3, 6]),
    between=st.sampled_from(["T", " "]),
    zone=st.sampled_from(["", "Z", "+00", "+0200", "-05:30"]),
)
def test_a_written_date_is_the_date(moment, digits, between, zone):
    if digits is None:  # a date only
        moment, text = datetime(moment.year, moment.month, moment.day), f"{moment:%Y-%m-%d}"
    else:
        moment = moment.replace(microsecond=moment.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
        fraction = f"{moment.microsecond:06d}"[:digits]
        text = f"{moment:%Y-%m-%d}{between}{moment:%H:%M:%S}{'.' * bool(digits)}{fraction}{zone}"
        offset = {"+0200": timedelta(hours=2), "-05:30": -timedelta(hours=5, minutes=30)}.get(zone, timedelta())
        moment = moment.replace(tzinfo=timezone(offset))
    encoder = with_parts([{"at": moment}]).encoder
    expected = encoder.encode_one({"at": moment}).X
    assert_array_equal(encoder.encode_one({"at": text}).X, expected)
    for frame in ([{"at": text}, {"at": None}], pd.DataFrame({"at": [text, None]}), pa.table({"at": [text, None]})):
        assert_array_equal(encoder.encode(frame).X, [expected[0], [NAN] * 5])


def test_one_written_date_is_read_as_many_are():
    """Python reads one, Arrow many: they agree on what is a date, and to the last bit on which."""
    days = [
        "2024-02-29",
        "2023-02-29",
        "0001-01-01",
        "0000-01-01",
        "9999-12-31",
        "1969-12-31",
        "2024-00-10",
        "20240510",
    ]
    clocks = ["", "T10", " 10:30", "T10:30:59", " 23:59:60", "T24:00", "T1030", "t10:30"]
    rest = itertools.product(["", ".5", ".123456", ".1234567"], ["", "Z", "+02", "-0530", "+23:59", "+25:00", "+02:75"])
    texts = ["".join((day, clock, *parts)) for (*parts,) in rest for day in days for clock in clocks]
    encoder = Encoder().encode([{"at": date(2024, 5, 1)}]).encoder
    n_dates = 0
    for text, seconds in zip(texts, seconds_of_texts(texts), strict=True):
        if np.isnan(seconds):
            with pytest.raises(ValueError, match="but it held dates so far"):
                encoder.encode_one({"at": text})
        else:
            assert encoder.encode_one({"at": text}).X[0, 0] == seconds
            n_dates += 1
    assert n_dates > 100


def test_all_digits_of_a_nanosecond_and_years_far_away_count():
    texts = ["2024-05-01T00:00:00.123456789", "9999-12-31T00:00:00Z", "0001-01-01"]
    days = [datetime(9999, 12, 31), datetime(1, 1, 1)]
    expected = [pd.Timestamp(texts[0]).value / 1e9, *((day - EPOCH).total_seconds() for day in days)]
    assert_array_equal(seconds_of_texts(texts), expected)


@pytest.mark.parametrize(
    "text", ["soon", "", "2024-13-01", "2024-02-30", "2024-05-01T25:00:00", "05/01/2024", "20240501", "12:30:00"]
)
def test_text_that_is_no_date_is_refused_among_dates_and_changes_nothing(text):
    encoder = with_parts([{"at": date(2024, 5, 1), "x": 1.0}]).encoder
    before = copy.deepcopy(vars(encoder))
    words = rf"column 'at' is '{text}'( in row 1)?, but it held dates so far\. Write a date as 2024-05-01,"
    good = "2024-05-01"
    for known_only in (True, False):
        with pytest.raises(ValueError, match=words):
            encoder.encode_one({"at": text}, known_only=known_only)
        for frame in ([{"at": good}, {"at": text}], pa.table({"at": [good, text], "x": [1.0, 2.0]})):
            with pytest.raises(ValueError, match=words):
                encoder.encode(frame, known_only=known_only)
    assert vars(encoder) == before


def test_the_first_rows_say_whether_text_is_text():
    assert with_parts([{"at": "2024-05-01"}]).encoder.kinds == ["category"]
    assert with_parts([{"at": date(2024, 5, 1)}, {"at": "2024-05-02"}]).encoder.kinds == ["date"]
    with pytest.raises(ValueError, match="a date, but it held text so far"):
        with_parts([{"at": "2024-05-01"}]).encoder.encode_one({"at": date(2024, 5, 1)})


@settings(deadline=None)
@given(moments=st.lists(st.none() | st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), min_size=1, max_size=5))
def test_the_same_dates_are_the_same_rows_in_every_container(moments):
    moments = [*moments, datetime(2024, 2, 29)]
    utc = [moment and moment.replace(tzinfo=UTC) for moment in moments]
    tokyo = [moment and moment.astimezone(timezone(timedelta(hours=9))) for moment in utc]
    rows = with_parts([{"at": moment} for moment in moments]).X
    assert rows.shape == (len(moments), 1 + len(PARTS))
    frames = [
        [{"at": moment} for moment in tokyo],
        [{"at": pd.Timestamp(moment)} for moment in moments],
        [{"at": np.datetime64(moment)} for moment in moments],
        np.array([moments], dtype="M8[us]").T,
        np.array([moments], dtype=object).T,
        pd.DataFrame({"at": moments}, dtype="datetime64[ns]"),
        pd.DataFrame({"at": tokyo}, dtype=object),
        pd.DataFrame({"at": pd.to_datetime(utc)}),
        pd.DataFrame({"at": pd.to_datetime(utc).tz_convert("Asia/Tokyo")}),
        pl.DataFrame({"at": moments}),
        pa.table({"at": pa.array(moments, pa.timestamp("ns"))}),
        pa.table({"at": pa.array(utc, pa.timestamp("us", "Europe/Paris"))}),
    ]
    for frame in frames:
        assert with_parts(frame).X.tobytes() == rows.tobytes()


values = st.one_of(
    st.none(),
    st.floats(-9, 9),
    st.sampled_from([date(2020, 1, 1), datetime(2021, 2, 3, 4, 5), pd.Timestamp("2022-03-04"), pd.NaT]),
    st.sampled_from(["2020-05-06", "2020-05-06T07:08:09.5Z"]),
)


@settings(deadline=None, max_examples=300)
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), values), min_size=1, max_size=6), split=st.integers(0, 6))
def test_rows_one_by_one_are_encoded_as_in_chunks(rows, split):
    """However numbers, dates, texts and columns come, the columns of encoded rows stand where they would one by one."""

    def chunked(*chunks):
        encoder, encoded = Encoder(date_parts=True), []
        for chunk in chunks:
            try:
                X, encoder = encoder.encode(chunk, dialect="dict")
            except ValueError as error:
                return type(error)
            encoded += X.tolist()
        padded = [[*row, *[NAN] * (encoder.width - len(row))] for row in encoded]
        return np.array(padded, dtype=float).tobytes(), vars(encoder)

    one_by_one = chunked(*([row] for row in rows))
    assert chunked(rows[:split], rows[split:]) == one_by_one
    assert chunked(rows) == one_by_one


def test_columns_stand_where_places_and_owners_say():
    rows = [{"b": date(2024, 5, 1), "c": "x"}, {"a": 1.0, "d": datetime(2024, 5, 2, 6)}, {"e": 2.0}]
    X, encoder = with_parts(rows)
    assert encoder.names == ["b", "c", "a", "d", "e"]
    assert encoder.owners.tolist() == [0, 1, 0, 0, 0, 0, 2, 3, 3, 3, 3, 3, 4]
    assert encoder.places.tolist() == [0, 1, 6, 7, 12]
    assert encoder.categorical == (1,)
    assert X[1, [6, 7, 8]].tolist() == [1.0, (datetime(2024, 5, 2, 6) - EPOCH).total_seconds(), 6.0]
    assert [encoder.name_at(place) for place in (0, 5, 8, 12)] == ["b", "b", "d", "e"]


def test_numbers_among_dates_are_seconds_and_dates_among_numbers_stay_numbers():
    day = date(1970, 1, 2)
    X, encoder = with_parts([{"at": day}, {"at": 86400.0}])
    assert encoder.kinds == ["date"]
    assert_array_equal(X[0], X[1])
    X, encoder = with_parts([{"at": 5.0}, {"at": day}])
    assert encoder.kinds == ["number"]
    assert_array_equal(X, [[5.0], [86400.0]])


def test_without_parts_a_date_is_one_number_and_may_be_written():
    encoder = Encoder().encode([{"at": date(1970, 1, 2)}]).encoder
    assert (encoder.kinds, encoder.width) == (["date"], 1)
    assert_array_equal(encoder.encode_one({"at": "1970-01-02T00:00:01Z"}).X, [[86401.0]])


def test_an_encoder_of_an_older_file_goes_on_with_one_number_a_date():
    encoder = Encoder().encode([{"x": 1.0, "at": 86400.0}]).encoder
    del encoder.__dict__["dates"], encoder.__dict__["date_parts"]  # as files before had none
    assert_array_equal(encoder.encode_one({"x": 1.0, "at": date(1970, 1, 3)}).X, [[172800.0, 1.0]])
    X, grown = encoder.encode([{"x": 1.0, "at": datetime(1970, 1, 3), "new": date(1970, 1, 2)}])
    assert_array_equal(X, [[172800.0, 1.0, 86400.0]])
    assert grown.width == 3
