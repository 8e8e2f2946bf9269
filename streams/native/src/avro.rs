//! Records of one flat writer schema to Arrow columns.
//!
//! The columns are raw: what the writer's type says, without logical types and without the
//! reader's ranges, which stay where the rules are (`streams/runtime/avro/convert.py`). Either all
//! records are plainly good, or the answer is `Unfit` and nothing is known about any of them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, GenericByteArray, Int64Array,
    types::{ByteArrayType, GenericBinaryType, GenericStringType},
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use crate::block::Block;
use crate::wire::{Cursor, Unfit};

/// Bytes before each record: a zero and the schema's id.
pub type Header = [u8; 5];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Long,
    Float,
    Double,
    Boolean,
    Bytes,
    String,
    Fixed(usize),
}

impl Kind {
    /// The kind by its Avro name; an int and an enum are read as a long.
    pub fn of(name: &str, size: usize) -> Option<Self> {
        Some(match name {
            "int" | "long" | "enum" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "boolean" => Self::Boolean,
            "bytes" => Self::Bytes,
            "string" => Self::String,
            "fixed" => Self::Fixed(size),
            _ => return None,
        })
    }
}

/// A field of the writer's record. `null` is the branch that means null, 0 or 1, where it is a
/// union of null and the kind; a field that is not `wanted` becomes no column.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub kind: Kind,
    pub null: Option<i64>,
    pub wanted: bool,
}

/// Decodes the records of some rows: one array per wanted field, in order.
pub fn decode(
    block: &Block,
    rows: Range<usize>,
    header: Header,
    fields: &[Field],
) -> Result<Vec<ArrayRef>, Unfit> {
    let mut steps: Vec<Step> = fields.iter().map(|&field| Step::new(field, rows.len())).collect();
    for row in rows {
        let mut cursor = Cursor::new(block.values.get(row).ok_or(Unfit)?);
        if cursor.array()? != header {
            return Err(Unfit);
        }
        for step in &mut steps {
            step.read(&mut cursor)?;
        }
        if !cursor.at_end() {
            return Err(Unfit);
        }
    }
    steps.into_iter().filter(|step| step.wanted).map(Step::finish).collect()
}

/// What is done with one field of every record.
struct Step {
    null: Option<i64>,
    wanted: bool,
    column: Column,
    valid: Option<BooleanBufferBuilder>,
}

enum Column {
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Boolean(BooleanBufferBuilder),
    String(Texts),
    Bytes(Texts),
    Fixed(usize, Texts),
}

impl Step {
    fn new(field: Field, rows: usize) -> Self {
        let room = if field.wanted { rows } else { 0 };
        let column = match field.kind {
            Kind::Long => Column::Long(Vec::with_capacity(room)),
            Kind::Float => Column::Float(Vec::with_capacity(room)),
            Kind::Double => Column::Double(Vec::with_capacity(room)),
            Kind::Boolean => Column::Boolean(BooleanBufferBuilder::new(room)),
            Kind::String => Column::String(Texts::new(room)),
            Kind::Bytes => Column::Bytes(Texts::new(room)),
            Kind::Fixed(size) => Column::Fixed(size, Texts::new(room)),
        };
        let nullable = field.wanted && field.null.is_some();
        let valid = nullable.then(|| BooleanBufferBuilder::new(room));
        Self { null: field.null, wanted: field.wanted, column, valid }
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor) -> Result<(), Unfit> {
        if let Some(null) = self.null {
            let branch = cursor.long()?;
            if !(0..=1).contains(&branch) {
                return Err(Unfit);
            }
            if let Some(valid) = &mut self.valid {
                valid.append(branch != null);
            }
            if branch == null {
                if self.wanted {
                    self.column.push_null();
                }
                return Ok(());
            }
        }
        if self.wanted { self.column.push(cursor) } else { self.column.skip(cursor) }
    }

    fn finish(mut self) -> Result<ArrayRef, Unfit> {
        let nulls = self.valid.as_mut().map(|valid| NullBuffer::new(valid.finish()));
        Ok(match self.column {
            Column::Long(all) => Arc::new(Int64Array::new(all.into(), nulls)),
            Column::Float(all) => Arc::new(Float32Array::new(all.into(), nulls)),
            Column::Double(all) => Arc::new(Float64Array::new(all.into(), nulls)),
            Column::Boolean(mut all) => Arc::new(BooleanArray::new(all.finish(), nulls)),
            Column::String(all) => all.array::<GenericStringType<i64>>(nulls)?,
            Column::Bytes(all) | Column::Fixed(_, all) => {
                all.array::<GenericBinaryType<i64>>(nulls)?
            }
        })
    }
}

impl Column {
    #[inline]
    fn push(&mut self, cursor: &mut Cursor) -> Result<(), Unfit> {
        match self {
            Self::Long(all) => all.push(cursor.long()?),
            Self::Float(all) => all.push(f32::from_le_bytes(cursor.array()?)),
            Self::Double(all) => all.push(f64::from_le_bytes(cursor.array()?)),
            Self::Boolean(all) => all.append(cursor.boolean()?),
            Self::String(all) | Self::Bytes(all) => all.push(cursor.bytes()?),
            Self::Fixed(size, all) => all.push(cursor.take(*size)?),
        }
        Ok(())
    }

    #[inline]
    fn skip(&self, cursor: &mut Cursor) -> Result<(), Unfit> {
        match self {
            Self::Long(_) => cursor.long().map(drop),
            Self::Float(_) => cursor.take(4).map(drop),
            Self::Double(_) => cursor.take(8).map(drop),
            Self::Boolean(_) => cursor.boolean().map(drop),
            Self::String(_) | Self::Bytes(_) => cursor.bytes().map(drop),
            Self::Fixed(size, _) => cursor.take(*size).map(drop),
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Long(all) => all.push(0),
            Self::Float(all) => all.push(0.0),
            Self::Double(all) => all.push(0.0),
            Self::Boolean(all) => all.append(false),
            Self::String(all) | Self::Bytes(all) | Self::Fixed(_, all) => all.push(&[]),
        }
    }
}

/// Byte strings behind each other, as Arrow has them.
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<i64>,
}

impl Texts {
    fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { bytes: Vec::new(), ends }
    }

    #[inline]
    fn push(&mut self, one: &[u8]) {
        self.bytes.extend_from_slice(one);
        self.ends.push(self.bytes.len() as i64);
    }

    /// The array; for strings `Unfit` unless each one is UTF-8.
    fn array<T: ByteArrayType<Offset = i64>>(
        self,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, Unfit> {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let made = GenericByteArray::<T>::try_new(ends, Buffer::from_vec(self.bytes), nulls);
        made.map(|array| Arc::new(array) as Arc<dyn Array>).map_err(|_| Unfit)
    }
}
