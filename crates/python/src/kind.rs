//! The types of elements, as Python's libraries name them.

use std::ffi::CStr;

use arrow_schema::DataType;
use dlpark::ffi::{DLDataType, DLDataTypeCode};
use gpu_reduce_dynamic::Dtype;
use pyo3::buffer::ElementType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::numpy::numpy;

/// A type of elements. Booleans are bytes, 0 or 1. Complex numbers are pairs of floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    pub dtype: Dtype,
    pub is_bool: bool,
    pub is_complex: bool,
}

impl Kind {
    pub const BOOL: Kind = Kind { dtype: Dtype::u8, is_bool: true, is_complex: false };

    /// Complex numbers whose parts have this type.
    pub const fn complex(dtype: Dtype) -> Kind {
        Kind { dtype, is_bool: false, is_complex: true }
    }

    /// Returns the kind of numbers of `bytes` bytes by NumPy's letter: `i` for signed integers, `u` for
    /// unsigned ones, `f` for floats.
    fn of_number(letter: char, bytes: usize) -> Option<Kind> {
        let dtype = match (letter, bytes) {
            ('i', 1) => Dtype::i8,
            ('i', 2) => Dtype::i16,
            ('i', 4) => Dtype::i32,
            ('i', 8) => Dtype::i64,
            ('u', 1) => Dtype::u8,
            ('u', 2) => Dtype::u16,
            ('u', 4) => Dtype::u32,
            ('u', 8) => Dtype::u64,
            ('f', 2) => Dtype::f16,
            ('f', 4) => Dtype::f32,
            ('f', 8) => Dtype::f64,
            _ => return None,
        };
        Some(dtype.into())
    }

    /// The type in a buffer; none if it is no number or has another byte order.
    pub fn of_buffer(format: &CStr) -> Option<Kind> {
        if matches!(format.to_bytes(), [b'>' | b'!', ..]) {
            return None;
        }
        match ElementType::from_format(format) {
            ElementType::Bool => Some(Kind::BOOL),
            ElementType::SignedInteger { bytes } => Self::of_number('i', bytes),
            ElementType::UnsignedInteger { bytes } => Self::of_number('u', bytes),
            ElementType::Float { bytes } => Self::of_number('f', bytes),
            _ => None,
        }
    }

    /// The type in a tensor; none if it is no number.
    pub fn of_tensor(DLDataType { code, bits, lanes }: DLDataType) -> Option<Kind> {
        let bytes = usize::from(bits / 8);
        match (code, bits, lanes) {
            (DLDataTypeCode::BOOL, 8, 1) => Some(Kind::BOOL),
            (DLDataTypeCode::COMPLEX, 64, 1) => Some(Kind::complex(Dtype::f32)),
            (DLDataTypeCode::COMPLEX, 128, 1) => Some(Kind::complex(Dtype::f64)),
            (DLDataTypeCode::BFLOAT, 16, 1) => Some(Dtype::bf16.into()),
            _ if bits % 8 != 0 || lanes != 1 => None,
            (DLDataTypeCode::INT, ..) => Self::of_number('i', bytes),
            (DLDataTypeCode::UINT, ..) => Self::of_number('u', bytes),
            (DLDataTypeCode::FLOAT, ..) => Self::of_number('f', bytes),
            _ => None,
        }
    }

    /// The type of a tensor with elements of the type that has this name in Rust; none if there is none.
    pub fn in_tensor(name: &str) -> Option<DLDataType> {
        let (code, bits) = match name {
            "bool" => (DLDataTypeCode::BOOL, 8),
            "bf16" => (DLDataTypeCode::BFLOAT, 16),
            _ => {
                let code = match name.chars().next()? {
                    'i' => DLDataTypeCode::INT,
                    'u' => DLDataTypeCode::UINT,
                    _ => DLDataTypeCode::FLOAT,
                };
                (code, 8 * name.parse::<Dtype>().ok()?.size() as u8)
            }
        };
        Some(DLDataType { code, bits, lanes: 1 })
    }

    /// The type in an Arrow array; none if it is no number.
    pub fn of_arrow(data_type: &DataType) -> Option<Kind> {
        let bytes = data_type.primitive_width()?;
        match data_type {
            _ if data_type.is_signed_integer() => Self::of_number('i', bytes),
            _ if data_type.is_unsigned_integer() => Self::of_number('u', bytes),
            _ if data_type.is_floating() => Self::of_number('f', bytes),
            _ => None,
        }
    }

    /// The type of NumPy's `typestr`; none if it is no number or has another byte order.
    pub fn of_typestr(typestr: &str) -> Option<Kind> {
        let (order, described) = typestr.split_at_checked(1)?;
        match (order, described) {
            (_, "b1") => Some(Kind::BOOL),
            // The order of single bytes does not count.
            (_, "i1" | "u1") | ("<" | "=", _) => match described {
                "V2" => Some(Dtype::bf16.into()),
                "c8" => Some(Kind::complex(Dtype::f32)),
                "c16" => Some(Kind::complex(Dtype::f64)),
                _ => Self::of_number(described.chars().next()?, described.get(1..)?.parse().ok()?),
            },
            _ => None,
        }
    }

    /// The type that NumPy makes of an object.
    pub fn of_dtype(dtype: &Bound<PyAny>) -> PyResult<Kind> {
        let py = dtype.py();
        let dtype = numpy(py)?.module.bind(py).call_method1("dtype", (dtype,))?;
        let name: String = dtype.getattr("name")?.extract()?;
        match (&name[..], name.parse::<Dtype>()) {
            ("bool", _) => Ok(Kind::BOOL),
            (_, Ok(dtype)) => Ok(dtype.into()),
            _ => Err(PyTypeError::new_err(format!("arrays of {name} are not reduced"))),
        }
    }

    /// NumPy's name of the type.
    pub fn name(self) -> &'static str {
        if self.is_bool { "bool" } else { self.dtype.aliases()[0] }
    }

    /// The name in Rust of the type of results with this type.
    pub fn rust_name(self) -> &'static str {
        if self.is_bool { "bool" } else { self.dtype.name() }
    }

    pub fn is_half(self) -> bool {
        matches!(self.dtype, Dtype::f16 | Dtype::bf16)
    }
}

impl From<Dtype> for Kind {
    fn from(dtype: Dtype) -> Kind {
        Kind { dtype, is_bool: false, is_complex: false }
    }
}
