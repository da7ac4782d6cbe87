//! Products of narrow floats against what an NVIDIA H200 computed.
//!
//! The inputs are deterministic, so only a checksum of the results is recorded for each kind of inputs.

use super::super::soft::BF16;
use super::*;

/// A kind of inputs, as [`Inputs::element`] makes them.
const KINDS: usize = 14;
/// The products of each kind.
const PRODUCTS: usize = 4;

/// An instruction of `mma` or `wmma`, and what an H200 gave.
struct Recorded {
    /// Its number, which is part of the inputs.
    number: u64,
    shape: [usize; 3],
    /// Of the factors, of c and of d.
    formats: [Format; 3],
    step: usize,
    checksums: [u64; KINDS],
}

/// SplitMix64's mixture.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A matrix of a product.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    A,
    B,
    C,
}

struct Inputs<'a> {
    recorded: &'a Recorded,
    product: u64,
}

/// A value by the field of its exponent. Ignored bits of `.tf32` are set to something.
fn packed(format: Format, negative: bool, field: u64, fraction: u64) -> u64 {
    let value = field << format.fraction | fraction & ((1 << format.fraction) - 1);
    let value = if negative { value | format.sign() } else { value };
    if format == TF32 { value << TF32_IGNORED | mix(value) & 0x1fff } else { value }
}

/// A value by its exponent, within the finite numbers.
fn finite(format: Format, negative: bool, exponent: i64, fraction: u64) -> u64 {
    let field = exponent + (1 << (format.exponent - 1)) - 1;
    packed(format, negative, field.clamp(0, (1 << format.exponent) - 2) as u64, fraction)
}

impl Inputs<'_> {
    fn random(&self, role: Role, row: usize, column: usize) -> u64 {
        let number = (self.recorded.number + 1) << 52 ^ 1 << 44 ^ self.product << 24 ^ (role as u64) << 20;
        mix(number ^ (row as u64) << 10 ^ column as u64)
    }

    fn element(&self, role: Role, row: usize, column: usize) -> u64 {
        let [factor, of_c, of_d] = self.recorded.formats;
        let (is_c, is_half) = (role == Role::C, factor == F16);
        let format = if is_c { of_c } else { factor };
        let bits = if format == TF32 { 32 } else { 1 + format.exponent + format.fraction };
        let k = if role == Role::A { column } else { row };
        let kind = self.product % KINDS as u64;
        let random = match (kind, role) {
            (5, Role::A) => self.random(role, row, column & !1),
            (5, Role::B) => self.random(role, row & !1, column),
            _ => self.random(role, row, column),
        };
        let negative = random & 1 != 0;
        let fraction = random >> 1 & ((1 << format.fraction) - 1);
        let x = (random >> 53) as i64;
        let top = (1u64 << format.exponent) - 1;
        let greatest = (1i64 << (format.exponent - 1)) - 1;
        let near = |exponent: i64| finite(format, negative, exponent, fraction);
        let by_field = |field: u64, fraction: u64| packed(format, negative, field, fraction);
        let all = random & (u64::MAX >> (64 - bits));
        match (kind, is_c) {
            // Exponents that are close, of all sizes, or of moderate sizes.
            (0, false) => near(x % 3 - 1),
            (0, true) => near(x % 5 - 1),
            (1, true) if is_half && format == F32 => near(x % 60 - 30),
            (1, _) => by_field(x as u64 % top, fraction),
            (2, false) => near(x % 16 - 8),
            (2, true) => near(x % 32 - 16),
            // All bits, or a few special values.
            (3, _) => all,
            (4, _) if x % 64 != 0 => near(x % 5 - 2),
            (4, _) => {
                let quiet = 1 << (format.fraction - 1);
                let (field, fraction) = [
                    (top, 0),
                    (top, 0),
                    (top, fraction | quiet),
                    (top, fraction & !quiet | 1),
                    (0, 0),
                    (0, 0),
                    (0, 1),
                    (top - 1, u64::MAX),
                ][x as usize / 64 % 8];
                by_field(field, fraction)
            }
            // Pairs of products that cancel each other.
            (5, true) => near(x % 24 - 24),
            (5, false) => {
                let flips = role == Role::A && k % 2 == 1 && x % 4 != 0;
                finite(format, negative != flips, x / 4 % 24 - 12, fraction)
            }
            // Zeros, the smallest and the greatest numbers.
            (6, true) => {
                let small = x as u64 / 4 % if format.exponent > 5 { 40 } else { 4 } + 1;
                let (field, fraction) = [(0, 0), (0, 0), (0, fraction), (small, fraction)][x as usize % 4];
                by_field(field, fraction)
            }
            (6, false) => match x % 8 {
                0..4 => by_field(0, 0),
                4 => by_field(0, 1),
                5 => by_field(top - 1, u64::MAX),
                6 => near(0),
                _ => near(x / 8 % 20 - 10),
            },
            // Small results.
            (7, true) if format == F32 && is_half => near(-10 - x % 20),
            (7, true) => by_field(x as u64 % if format == F16 { 4 } else { 24 }, fraction),
            (7, false) => near(if is_half { -5 - x % 9 } else { -60 - x % 16 }),
            // Great ones.
            (8, true) if is_half && format == F32 && x % 2 == 1 => near(30 - x / 2 % 4),
            (8, true) => near(greatest - x % 3),
            (8, false) if is_half => near(if of_d == F16 { 7 } else { 15 } - x % 4),
            (8, false) => near(greatest / 2 - x % 3),
            // Powers of two.
            (9, true) => near(x % 31 - 15),
            (9, false) => finite(format, negative, x % 15 - 7, 0),
            // A great c, or almost only c.
            (10, true) => near(x % 6),
            (10, false) => near(-(x % 8) - 4),
            (11, true) => all,
            (11, false) if x % 16 == 0 => near(0),
            (11, false) => by_field(0, 0),
            // The longest fractions.
            (12, _) => {
                let negative = negative && self.product / KINDS as u64 % 2 == 1;
                finite(format, negative, x % if is_c { 8 } else { 2 }, u64::MAX)
            }
            // Zeros times great numbers.
            (_, true) => near(x % 20 - 20),
            (_, false) if k % 2 == 1 => near(x % 4 - 2),
            _ if role == Role::A => by_field(0, 0),
            _ => near(1 << 11),
        }
    }
}

#[test]
fn products_of_narrow_floats_are_an_h200s() {
    for recorded in RECORDED {
        let Recorded { shape: [m, n, k], formats: [factor, c, d], step, .. } = *recorded;
        let arithmetic = Arithmetic::Float { factor, c, d, step };
        for (kind, &checksum) in recorded.checksums.iter().enumerate() {
            let mut found = 0xcbf2_9ce4_8422_2325u64;
            for product in 0..PRODUCTS {
                let inputs = Inputs { recorded, product: (product * KINDS + kind) as u64 };
                let by_rows = |rows: usize, columns: usize, role| -> Vec<u64> {
                    (0..rows * columns).map(|i| inputs.element(role, i / columns, i % columns)).collect()
                };
                let (a, of_c) = (by_rows(m, k, Role::A), by_rows(m, n, Role::C));
                let b: Vec<u64> = (0..n * k).map(|i| inputs.element(Role::B, i % k, i / k)).collect();
                for bits in arithmetic.multiply(k, n, [&a, &b, &of_c]) {
                    found = (found ^ bits).wrapping_mul(0x100_0000_01b3);
                    found ^= found >> 29;
                }
            }
            assert_eq!(found, checksum, "instruction {}, kind {kind}", recorded.number);
        }
    }
}

const RECORDED: &[Recorded] = &[
    Recorded {
        number: 0,
        shape: [16, 8, 8],
        formats: [F16, F32, F32],
        step: 8,
        checksums: [
            0xc5fd_7928_b77f_2bd8,
            0xc014_7047_4f90_25e9,
            0x6ec3_679c_1cee_db3c,
            0xb458_c444_2a9a_6ac0,
            0x4469_c701_2703_f21c,
            0xeb1e_ffdb_496b_1ab7,
            0xc56d_e9c7_6425_40cd,
            0xc3a1_b726_9cc7_4b28,
            0xaf12_866d_e483_079f,
            0x5591_f5d1_bda1_a9d1,
            0xbba5_79dc_d209_4f3d,
            0x5bda_512f_5d8b_315d,
            0xc6af_8e1f_a62f_aed3,
            0xc033_c452_6992_e709,
        ],
    },
    Recorded {
        number: 1,
        shape: [16, 8, 8],
        formats: [F16, F16, F16],
        step: 8,
        checksums: [
            0x8207_a278_2db1_aa95,
            0x09c0_f1fa_9bd1_0981,
            0xbbdc_ec86_b293_dfff,
            0x188a_6dca_25e3_dbc2,
            0x07e0_20fc_de03_5cfe,
            0x27b5_ee3c_3c6a_37ef,
            0x93a0_a524_36c1_3487,
            0xb8dc_2b49_f3a0_e00f,
            0xb7cc_993f_038a_8ce8,
            0x9d05_ea46_816c_37f7,
            0x0888_6a28_1097_7fc5,
            0x6ec2_b7f5_0218_26c5,
            0xa1ae_f1a7_ad3a_75a2,
            0x8080_656f_fa31_298e,
        ],
    },
    Recorded {
        number: 2,
        shape: [16, 8, 8],
        formats: [BF16, F32, F32],
        step: 8,
        checksums: [
            0x5742_6bd7_12ac_c722,
            0xa56d_e4a4_2596_3418,
            0xdbd7_c50c_a5b9_ec5c,
            0x1566_702e_d2a3_2d9d,
            0x2d07_07f6_d2ad_ac08,
            0x0bbf_e099_05d0_e613,
            0x6a88_6027_3983_a196,
            0x269f_ebb9_ac13_7582,
            0xd47a_8cc1_0d1d_9bcd,
            0xded2_42c5_7fdc_1fd8,
            0x29fd_bf66_0cd1_ec9b,
            0xdda9_b8b4_f0f4_450e,
            0x08b5_ee58_a28d_ad8c,
            0xb4d6_ec74_b1a7_7c25,
        ],
    },
    Recorded {
        number: 3,
        shape: [16, 8, 16],
        formats: [F16, F32, F32],
        step: 16,
        checksums: [
            0xaa6e_07a5_ff7a_26fd,
            0xaa73_1053_2038_df31,
            0xf314_556d_9171_c934,
            0x5704_aaf0_7390_830c,
            0xe43f_b7c1_d66a_2a9f,
            0x8b13_d6a6_9e8b_0a10,
            0x97f4_db0f_6264_3857,
            0xa386_8f39_de01_3ca3,
            0x448b_8436_f424_8c72,
            0x8402_a240_a09b_c27f,
            0xf155_24cb_8afe_df97,
            0x5dc1_8ce7_63d5_70df,
            0xcf85_0c9b_eb56_3985,
            0xe1c8_5894_b4ae_583c,
        ],
    },
    Recorded {
        number: 4,
        shape: [16, 8, 16],
        formats: [F16, F16, F16],
        step: 16,
        checksums: [
            0x70b5_3593_3b1f_4291,
            0x9ee4_a738_e732_b769,
            0xf702_6397_2e62_5f61,
            0xae7e_4128_29ff_822d,
            0x605b_fc27_3c9b_c4cf,
            0x11d2_2de7_d0c5_852d,
            0xb24d_e19d_559b_930a,
            0x4506_a2d9_49c8_f91c,
            0xc08e_16f9_747a_7ec6,
            0x5ba6_0f54_ce0e_53eb,
            0x464d_3dc0_f1eb_f7a7,
            0xb16b_6ccf_dd74_9869,
            0xe8d2_0302_ed7a_9460,
            0x494a_f79d_865a_c3e6,
        ],
    },
    Recorded {
        number: 5,
        shape: [16, 8, 16],
        formats: [BF16, F32, F32],
        step: 16,
        checksums: [
            0x2a49_04f5_589e_6733,
            0xb3a5_44d9_31de_cc6d,
            0x2d15_5a08_2bfb_9105,
            0xed5e_72c4_47d1_744e,
            0x5ecf_baaf_ccf4_5b80,
            0xeaec_a6bf_94f4_2a48,
            0x5659_4273_7641_c610,
            0x9795_ce54_33ad_4827,
            0x1da9_6d58_bd7b_2cba,
            0x5d46_8e75_91e5_7587,
            0xb8e2_c5fc_6939_7e0a,
            0x2405_37e4_007b_aa1c,
            0x485e_7289_d0f5_b31b,
            0xd800_acdc_9d92_4aca,
        ],
    },
    Recorded {
        number: 6,
        shape: [16, 8, 4],
        formats: [TF32, F32, F32],
        step: 4,
        checksums: [
            0x4f09_1bf2_9495_a3cf,
            0x1b53_6de6_f69c_af6c,
            0x9c15_7c2d_1972_f355,
            0xb0cc_eaa0_8ab9_457c,
            0x9adc_27b7_f43a_d709,
            0x511b_c60c_ef4e_2d87,
            0x0306_19fb_db82_39f4,
            0x3a74_6e13_34a0_8465,
            0x6f04_a740_3a94_7803,
            0x2311_d6e5_d164_b90d,
            0x0730_c2fa_e722_bb70,
            0x8381_c833_51de_d561,
            0x0aac_d0c7_4449_565a,
            0xd8ea_88cc_ca0c_aba8,
        ],
    },
    Recorded {
        number: 7,
        shape: [16, 8, 8],
        formats: [TF32, F32, F32],
        step: 8,
        checksums: [
            0x208d_6d0d_e180_d04e,
            0xbc24_5110_7dda_dc50,
            0xb8af_640d_e380_e526,
            0x927f_8dd2_c978_aa5c,
            0xc18d_953e_4a78_e213,
            0x673c_31a2_d792_ae0a,
            0x6aff_23f5_efbf_421a,
            0x9968_10a6_b602_abac,
            0x1722_a0c8_5c40_de2e,
            0x9c03_819a_0630_4894,
            0xaad5_20b7_8bfb_2b9b,
            0x6454_e09f_0a18_a6bc,
            0x841f_b7f6_f1ca_2cec,
            0x1e0c_7867_3d50_25c5,
        ],
    },
    Recorded {
        number: 64,
        shape: [16, 16, 16],
        formats: [F16, F16, F32],
        step: 16,
        checksums: [
            0xcbbb_5aff_28b5_3d2e,
            0xe130_0824_72a2_3eae,
            0xa6e9_6def_db03_0259,
            0x08d7_2775_c568_dbb9,
            0xd951_4c49_cdf3_32e0,
            0xbed0_220f_0157_8a4a,
            0xdd24_9a6c_1811_d5da,
            0x2d56_11bd_3fb8_b56e,
            0xdb40_36ba_9aef_dc83,
            0x71d5_31f4_c1ae_35f6,
            0x01f4_c4a6_e46d_5c54,
            0xe8d3_02bc_5389_70d3,
            0xfb5d_2203_3015_e7c0,
            0xf35d_495d_ce67_4b50,
        ],
    },
    Recorded {
        number: 65,
        shape: [16, 16, 16],
        formats: [F16, F32, F16],
        step: 16,
        checksums: [
            0xe275_42de_51b3_a848,
            0x02ff_dff6_e933_c060,
            0x19e2_79b3_8f82_fefe,
            0x64f1_2273_87c8_ee93,
            0x84f7_e330_9773_8912,
            0xc268_7b46_a72d_4c10,
            0x0b7d_f540_6e6f_c193,
            0x1d12_e6ba_ee9e_bda4,
            0x9b86_1f2d_a010_e22d,
            0x097b_8956_79f9_7bcd,
            0xfb55_713c_2624_0e2c,
            0xfa4e_850d_a0a6_8b25,
            0xebc8_56eb_1389_eca7,
            0x32a5_1312_e313_74f0,
        ],
    },
    Recorded {
        number: 71,
        shape: [16, 16, 8],
        formats: [TF32, F32, F32],
        step: 4,
        checksums: [
            0xa077_c4d3_beec_157d,
            0xec55_3c40_920e_04d6,
            0x58fa_ec6c_e4eb_b182,
            0x95ba_cfbb_3044_43af,
            0xd0f4_3cdb_0e0d_253d,
            0x9c32_993b_9a67_29dd,
            0xe4a1_5418_e0c7_fb4e,
            0x78b3_98c5_184f_8592,
            0x71cc_1ef9_eddb_ada7,
            0xd041_09b0_b6fc_07f7,
            0xcd1b_2200_fd06_9d84,
            0xee64_6f04_ddbf_fe6b,
            0x953a_8288_75da_34e6,
            0xba3f_be6d_c0f0_cf4d,
        ],
    },
];
