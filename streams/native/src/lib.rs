//! The column reader: records from librdkafka's queues into columns, Avro into Arrow, without the
//! GIL; and the other way, batches of records to a producer. Everything else stays in Python: see
//! `streams/runtime/native/`.
//!
//! Without the feature `python` it is the core alone, which the tests need.
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod avro;
mod block;
mod feed;
mod librdkafka;
mod plugin;
mod pool;
#[cfg(feature = "python")]
mod python;
mod sender;
mod wire;

#[cfg(feature = "python")]
#[pyo3::pymodule]
mod headrace_native {
    #[pymodule_export]
    use super::python::{Columns, Feed, Layout, Records, Sender, attach, peeks};
}
