//! What Python sees.

use std::ffi::CString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, ArrayRef, StructArray, ffi};
use arrow_schema::{Field as ArrowField, Fields};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyString, PyTuple};

use crate::avro::{self, Field, Kind};
use crate::block::{Block, Record, decode_headers, encode_header};
use crate::sender::{self, Batch};
use crate::{feed, librdkafka, plugin, pool};

/// Uses the librdkafka that the given module (confluent-kafka's) is linked with.
#[pyfunction]
pub fn attach(module: PathBuf) -> PyResult<()> {
    librdkafka::load(&module).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Whether records without headers are told without asking librdkafka.
#[pyfunction]
pub fn peeks() -> bool {
    librdkafka::api().is_some_and(|api| librdkafka::Peek::of(api).known())
}

/// The records of a consumer's partitions; made right after the consumer, in the same thread.
#[pyclass(frozen)]
pub struct Feed {
    feed: feed::Feed,
}

type Runs = Vec<(i32, Records)>;
type Failures = Vec<(i32, i32, String)>;

#[pymethods]
impl Feed {
    #[new]
    fn new(topic: CString) -> PyResult<Self> {
        let api = librdkafka::api().ok_or_else(|| PyRuntimeError::new_err("not attached"))?;
        let met = plugin::claim();
        let met = met.ok_or_else(|| PyRuntimeError::new_err("no consumer with this plugin"))?;
        Ok(Self { feed: feed::Feed::new(api, met, topic) })
    }

    /// Take a partition's queue; to be called before the partition is assigned.
    fn place(&self, partition: i32) -> PyResult<()> {
        self.feed.place(partition).map_err(|_| gone())
    }

    /// Give a partition's queue back.
    fn leave(&self, partition: i32) {
        self.feed.leave(partition);
    }

    /// Records by partition, and errors that came instead; see `feed::Feed::read`.
    fn read(
        &self,
        py: Python<'_>,
        wait_ms: u64,
        least: usize,
        most: usize,
    ) -> PyResult<(Runs, Failures)> {
        let wait = Duration::from_millis(wait_ms);
        let found = py.detach(|| self.feed.read(wait, least, most)).map_err(|_| gone())?;
        let blocks = found.blocks.into_iter();
        let runs = blocks.map(|(partition, block)| (partition, Records::whole(block)));
        let failures = found.failures.into_iter().map(|one| (one.partition, one.code, one.text));
        Ok((runs.collect(), failures.collect()))
    }
}

fn gone() -> PyErr {
    PyRuntimeError::new_err("the client is closed")
}

/// Sends to one topic through a producer; made right after the producer, in the same thread.
#[pyclass(frozen)]
pub struct Sender {
    sender: sender::Sender,
}

/// Key, value, and the headers' names and values.
type Sent<'a> = (&'a [u8], &'a [u8], Bound<'a, PyList>);

#[pymethods]
impl Sender {
    #[new]
    fn new(topic: CString) -> PyResult<Self> {
        let api = librdkafka::api().ok_or_else(|| PyRuntimeError::new_err("not attached"))?;
        let met = plugin::claim();
        let met = met.ok_or_else(|| PyRuntimeError::new_err("no producer with this plugin"))?;
        let sender = sender::Sender::new(api, met, &topic);
        Ok(Self { sender: sender.ok_or_else(|| PyRuntimeError::new_err("no such topic"))? })
    }

    /// Hand records to the producer, in order, from `begin` on. How many it took, and the code of
    /// the error that stopped it; 0 if it took all.
    fn send(
        &self,
        py: Python<'_>,
        partition: i32,
        records: &Bound<'_, PyList>,
        begin: usize,
    ) -> PyResult<(usize, i32)> {
        let mut batch = Batch::default();
        for record in records.iter().skip(begin) {
            let (key, value, headers): Sent = record.extract()?;
            batch.push(key, value);
            for header in headers.iter() {
                let (name, value): (&str, Option<&[u8]>) = header.extract()?;
                if name.contains('\0') {
                    return Err(PyValueError::new_err("a header's name has a zero in it"));
                }
                batch.header(name.as_bytes(), value);
            }
        }
        py.detach(|| self.sender.send(partition, &batch)).map_err(|_| gone())
    }

    /// The error code of the first record since the last call that was not delivered.
    fn lost(&self) -> Option<i32> {
        self.sender.lost()
    }
}

/// Consecutive records of a partition. They never change, and parts share their memory.
#[pyclass(frozen)]
pub struct Records {
    block: Arc<Held>,
    rows: Range<usize>,
}

/// A block that goes back to the pool.
struct Held(Block);

impl Drop for Held {
    fn drop(&mut self) {
        pool::give_back(std::mem::take(&mut self.0));
    }
}

impl std::ops::Deref for Held {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

impl Records {
    fn whole(block: Block) -> Self {
        let rows = 0..block.len();
        Self { block: Arc::new(Held(block)), rows }
    }

    fn at(&self, row: usize) -> PyResult<usize> {
        let found = self.rows.start.checked_add(row).filter(|at| *at < self.rows.end);
        found.ok_or_else(|| PyIndexError::new_err("no such record"))
    }
}

#[pymethods]
impl Records {
    /// Records made by hand: `(offset, value, key, timestamp type, timestamp, headers)` each.
    #[staticmethod]
    fn of(records: Vec<Given>) -> PyResult<Self> {
        let mut block = Block::default();
        for given in &records {
            given.push(&mut block);
        }
        Ok(Self::whole(block))
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// The records `[start, stop)`.
    fn part(&self, start: usize, stop: usize) -> PyResult<Self> {
        if start > stop || stop > self.rows.len() {
            return Err(PyIndexError::new_err("no such records"));
        }
        let first = self.rows.start;
        Ok(Self { block: Arc::clone(&self.block), rows: first + start..first + stop })
    }

    /// These records and then those of `parts`, in memory of their own.
    fn joined(&self, py: Python<'_>, parts: Vec<Py<Self>>) -> Self {
        let parts: Vec<&Self> = parts.iter().map(Py::get).collect();
        py.detach(|| {
            let mut block = pool::block();
            block.append(&self.block, self.rows.clone());
            for part in parts {
                block.append(&part.block, part.rows.clone());
            }
            Self::whole(block)
        })
    }

    /// Some of the records, in memory of their own.
    fn picked(&self, rows: Vec<usize>) -> PyResult<Self> {
        let mut block = pool::block();
        for row in rows {
            let at = self.at(row)?;
            block.append(&self.block, at..at + 1);
        }
        Ok(Self::whole(block))
    }

    /// How many records come before the first one at `offset` or later.
    fn before(&self, offset: i64) -> usize {
        self.block.offsets[self.rows.clone()].partition_point(|one| *one < offset)
    }

    fn offset(&self, row: usize) -> PyResult<i64> {
        Ok(self.block.offsets[self.at(row)?])
    }

    fn value<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.block.values.get(self.at(row)?).map(|value| PyBytes::new(py, value)))
    }

    fn key<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.block.keys.get(self.at(row)?).map(|key| PyBytes::new(py, key)))
    }

    /// The value of the first header of each record, where that header has this name.
    fn first_headers<'py>(&self, py: Python<'py>, name: &str) -> Vec<Option<Bound<'py, PyBytes>>> {
        let first = |row| decode_headers(self.block.headers(row)?).next();
        let value = |row| match first(row) {
            Some((found, Some(value))) if found == name.as_bytes() => Some(PyBytes::new(py, value)),
            _ => None,
        };
        self.rows.clone().map(value).collect()
    }

    /// Type and milliseconds.
    fn timestamp(&self, row: usize) -> PyResult<(u8, i64)> {
        let at = self.at(row)?;
        Ok((self.block.stamp_kinds[at], self.block.stamps[at]))
    }

    /// Names and values, or None where the record has none.
    fn headers<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(encoded) = self.block.headers(self.at(row)?) else { return Ok(None) };
        let list = PyList::empty(py);
        for (name, value) in decode_headers(encoded) {
            let name = PyString::from_bytes(py, name)?;
            list.append((name, value.map(|bytes| PyBytes::new(py, bytes))))?;
        }
        Ok(Some(list))
    }

    /// All offsets, as native 64-bit integers behind each other.
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, raw(&self.block.offsets[self.rows.clone()]))
    }

    /// All timestamps in milliseconds, as native 64-bit integers behind each other.
    fn stamps<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, raw(&self.block.stamps[self.rows.clone()]))
    }

    /// Columns of the records, all of which must begin with `header`; None unless every record is
    /// plainly good.
    fn decode(&self, py: Python<'_>, header: avro::Header, layout: &Layout) -> Option<Columns> {
        let decoded =
            py.detach(|| avro::decode(&self.block, self.rows.clone(), header, &layout.fields));
        let arrays = decoded.ok()?;
        Some(Columns { names: layout.names.clone(), arrays, height: self.rows.len() })
    }
}

fn raw(numbers: &[i64]) -> &[u8] {
    let size = size_of_val(numbers);
    // SAFETY: integers have no padding, and any alignment serves bytes.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size) }
}

/// The fields of a flat writer schema: `(kind, size, branch of null or None, name of the column
/// or None)` each.
#[pyclass(frozen)]
pub struct Layout {
    fields: Vec<Field>,
    names: Vec<String>,
}

#[pymethods]
impl Layout {
    #[new]
    fn new(fields: Vec<(String, usize, Option<i64>, Option<String>)>) -> PyResult<Self> {
        let mut layout = Self { fields: Vec::new(), names: Vec::new() };
        for (kind, size, null, name) in fields {
            let kind = Kind::of(&kind, size)
                .ok_or_else(|| PyValueError::new_err(format!("{kind} is not flat")))?;
            layout.fields.push(Field { kind, null, wanted: name.is_some() });
            layout.names.extend(name);
        }
        Ok(layout)
    }
}

/// Decoded columns, given through the Arrow PyCapsule interface.
#[pyclass(frozen)]
pub struct Columns {
    names: Vec<String>,
    arrays: Vec<ArrayRef>,
    height: usize,
}

#[pymethods]
impl Columns {
    #[getter]
    fn height(&self) -> usize {
        self.height
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // A consumer may ask for other types; we need not follow.
        let fields: Fields = self
            .names
            .iter()
            .zip(&self.arrays)
            .map(|(name, array)| ArrowField::new(name, array.data_type().clone(), true))
            .collect();
        let all = StructArray::new(fields, self.arrays.clone(), None);
        let (array, schema) = ffi::to_ffi(&all.into_data())
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }
}

/// A record as Python gives it.
#[derive(FromPyObject)]
struct Given {
    #[pyo3(item(0))]
    offset: i64,
    #[pyo3(item(1))]
    value: Option<Vec<u8>>,
    #[pyo3(item(2))]
    key: Option<Vec<u8>>,
    #[pyo3(item(3))]
    stamp_kind: u8,
    #[pyo3(item(4))]
    stamp: i64,
    #[pyo3(item(5))]
    headers: Option<Vec<(String, Option<Vec<u8>>)>>,
}

impl Given {
    fn push(&self, block: &mut Block) {
        let headers = self.headers.as_ref().map(|all| {
            let mut encoded = Vec::new();
            for (name, value) in all {
                encode_header(&mut encoded, name.as_bytes(), value.as_deref());
            }
            encoded
        });
        block.push(&Record {
            offset: self.offset,
            value: self.value.as_deref(),
            key: self.key.as_deref(),
            stamp: self.stamp,
            stamp_kind: self.stamp_kind,
            headers: headers.as_deref(),
        });
    }
}
