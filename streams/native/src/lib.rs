//! The column reader: records from librdkafka's queues into columns, Avro into Arrow, without the
//! GIL. Everything else stays in Python: see `streams/runtime/native/`.

mod avro;
mod block;
mod feed;
mod librdkafka;
mod plugin;
mod python;
mod wire;

use pyo3::prelude::*;

#[pymodule]
mod headrace_native {
    #[pymodule_export]
    use super::python::{Columns, Feed, Layout, Records, attach};
}
