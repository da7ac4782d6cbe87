//! The types of elements, as Python's libraries name them.

use std::ffi::CStr;

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

    /// The type in a buffer; none if it is no number or has another byte order.
    pub fn of_buffer(format: &CStr) -> Option<Kind> {
        if matches!(format.to_bytes(), [b'>' | b'!', ..]) {
            return None;
        }
        let dtype = match ElementType::from_format(format) {
            ElementType::Bool => return Some(Kind::BOOL),
            ElementType::SignedInteger { bytes: 1 } => Dtype::i8,
            ElementType::SignedInteger { bytes: 2 } => Dtype::i16,
            ElementType::SignedInteger { bytes: 4 } => Dtype::i32,
            ElementType::SignedInteger { bytes: 8 } => Dtype::i64,
            ElementType::UnsignedInteger { bytes: 1 } => Dtype::u8,
            ElementType::UnsignedInteger { bytes: 2 } => Dtype::u16,
            ElementType::UnsignedInteger { bytes: 4 } => Dtype::u32,
            ElementType::UnsignedInteger { bytes: 8 } => Dtype::u64,
            ElementType::Float { bytes: 2 } => Dtype::f16,
            ElementType::Float { bytes: 4 } => Dtype::f32,
            ElementType::Float { bytes: 8 } => Dtype::f64,
            _ => return None,
        };
        Some(dtype.into())
    }

    /// The type in a tensor; none if it is no number.
    pub fn of_tensor(DLDataType { code, bits, lanes }: DLDataType) -> Option<Kind> {
        let dtype = match (code, bits, lanes) {
            (DLDataTypeCode::BOOL, 8, 1) => return Some(Kind::BOOL),
            (DLDataTypeCode::COMPLEX, 64, 1) => return Some(Kind::complex(Dtype::f32)),
            (DLDataTypeCode::COMPLEX, 128, 1) => return Some(Kind::complex(Dtype::f64)),
            (DLDataTypeCode::INT, 8, 1) => Dtype::i8,
            (DLDataTypeCode::INT, 16, 1) => Dtype::i16,
            (DLDataTypeCode::INT, 32, 1) => Dtype::i32,
            (DLDataTypeCode::INT, 64, 1) => Dtype::i64,
            (DLDataTypeCode::UINT, 8, 1) => Dtype::u8,
            (DLDataTypeCode::UINT, 16, 1) => Dtype::u16,
            (DLDataTypeCode::UINT, 32, 1) => Dtype::u32,
            (DLDataTypeCode::UINT, 64, 1) => Dtype::u64,
            (DLDataTypeCode::FLOAT, 16, 1) => Dtype::f16,
            (DLDataTypeCode::BFLOAT, 16, 1) => Dtype::bf16,
            (DLDataTypeCode::FLOAT, 32, 1) => Dtype::f32,
            (DLDataTypeCode::FLOAT, 64, 1) => Dtype::f64,
            _ => return None,
        };
        Some(dtype.into())
    }

    /// The type of NumPy's `typestr`; none if it is no number or has another byte order.
    pub fn of_typestr(typestr: &str) -> Option<Kind> {
        // The order of single bytes does not count.
        let (order, described) = typestr.split_at_checked(1)?;
        match (order, described) {
            (_, "b1") => Some(Kind::BOOL),
            (_, "i1") => Some(Dtype::i8.into()),
            (_, "u1") => Some(Dtype::u8.into()),
            ("<" | "=", "V2") => Some(Dtype::bf16.into()),
            ("<" | "=", "c8") => Some(Kind::complex(Dtype::f32)),
            ("<" | "=", "c16") => Some(Kind::complex(Dtype::f64)),
            ("<" | "=", _) => {
                let (kind, bytes) = described.split_at_checked(1)?;
                let bits = 8 * bytes.parse::<u8>().ok()?.min(16);
                Some(format!("{kind}{bits}").parse::<Dtype>().ok()?.into())
            }
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

    pub fn is_half(self) -> bool {
        matches!(self.dtype, Dtype::f16 | Dtype::bf16)
    }
}

impl From<Dtype> for Kind {
    fn from(dtype: Dtype) -> Kind {
        Kind { dtype, is_bool: false, is_complex: false }
    }
}
