//! The supported instructions: their names, modifiers and types.
//!
//! Each line is a form, as in the PTX ISA's syntax: a name, then groups of alternative words. One word of
//! each group must be present; a group with `?` is optional. Words in capitals stand for the alternatives in
//! `GROUPS`. The forms are those of ISA 8.6 for sm_90 that ptxas accepts, except for clusters, textures,
//! copies of tensors or within a cluster, and some matrices (warp groups, sparse ones, floats of 8 bits,
//! `wmma` of less than 8 bits, `mma.m8n8k4` of `f16`).
//!
//! As in ptxas, modifiers may come in any order, but types must keep theirs.

use std::{collections::HashMap, sync::LazyLock};

use crate::{alu::parse_type, ptx::ast::Instruction};

const GROUPS: &str = "
    ROUND     rn|rz|rm|rp
    INTEGRAL  rni|rzi|rmi|rpi
    CARRY     u32|s32|u64|s64
    INT       u16|s16|CARRY
    ALL_INT   u8|s8|INT
    BITS      b16|b32|b64
    SCALAR    BITS|INT|f32|f64
    STORED    b8|u8|s8|SCALAR
    HALF      f16|f16x2
    BHALF     bf16|bf16x2
    EQUAL     eq|ne
    ORDER     EQUAL|lt|le|gt|ge
    UNSIGNED  ORDER|lo|ls|hi|hs
    FLOAT     ORDER|equ|neu|ltu|leu|gtu|geu|num|nan
    JOIN      and|or|xor
    TRUTH     u32|s32|f32|f16|bf16
    PROPERTY  finite|infinite|number|notanumber|normal|subnormal
    SHARED    shared|shared::cta
    REMOTE    SHARED|shared::cluster
    STATE     global|SHARED
    PARAM     param|param::entry|param::func
    SCOPE     cta|cluster|gpu|sys
    VECTOR    v2|v4
    EVICT     L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate
    AHEAD     L2::64B|L2::128B|L2::256B
    HINT      L2::cache_hint
    PRIORITY  L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged
    SECOND    L2::evict_first|L2::evict_unchanged
    WMMA      m16n16k16|m32n8k16|m8n32k16
";

const CONTROL: &str = "
    bra       uni?
    brx       idx uni?
    call      uni?
    ret       uni?
    exit
    trap
    brkpt
    cvta      to? STATE|const|local|param|param::entry u64
";

const LANES: &str = "
    mov       SCALAR|pred
    selp      SCALAR
    slct      SCALAR s32
    slct      ftz? SCALAR f32

    add       INT|u16x2|s16x2
    add       sat s32
    add       cc CARRY
    add       ROUND? ftz? sat? f32
    add       ROUND? f64
    add       rn? ftz? sat? HALF
    add       rn? BHALF
    sub       INT
    sub       sat s32
    sub       cc CARRY
    sub       ROUND? ftz? sat? f32
    sub       ROUND? f64
    sub       rn? ftz? sat? HALF
    sub       rn? BHALF
    mul       lo|hi INT
    mul       wide u16|s16|u32|s32
    mul       ROUND? ftz? sat? f32
    mul       ROUND? f64
    mul       rn? ftz? sat? HALF
    mul       rn? BHALF
    mad       lo|hi INT
    mad       hi sat s32
    mad       wide u16|s16|u32|s32
    mad       lo|hi cc CARRY
    mad       ROUND ftz? sat? f32
    mad       ROUND f64
    fma       ROUND ftz? sat? f32
    fma       ROUND f64
    fma       rn ftz? sat? HALF
    fma       rn ftz? relu HALF
    fma       rn relu? BHALF
    addc      cc? CARRY
    subc      cc? CARRY
    madc      lo|hi cc? CARRY
    mul24     lo|hi u32|s32
    mad24     lo|hi u32|s32
    mad24     hi sat s32
    sad       INT
    div       INT
    div       ROUND|approx|full ftz? f32
    div       ROUND f64
    rem       INT
    min       INT|u16x2|s16x2|f64
    min       ftz? NaN? f32|HALF
    min       ftz? NaN? xorsign abs f32|HALF
    min       NaN? BHALF
    min       NaN? xorsign abs BHALF
    max       INT|u16x2|s16x2|f64
    max       ftz? NaN? f32|HALF
    max       ftz? NaN? xorsign abs f32|HALF
    max       NaN? BHALF
    max       NaN? xorsign abs BHALF
    abs       s16|s32|s64|f64|BHALF
    abs       ftz? f32|HALF
    neg       s16|s32|s64|f64|BHALF
    neg       ftz? f32|HALF
    dp4a      u32|s32 u32|s32
    dp2a      lo|hi u32|s32 u32|s32
    vabsdiff4 sat|add? u32|s32 u32|s32 u32|s32

    rcp       ROUND|approx ftz? f32
    rcp       ROUND f64
    rcp       approx ftz f64
    sqrt      ROUND|approx ftz? f32
    sqrt      ROUND f64
    rsqrt     approx ftz? f32|f64
    sin       approx ftz? f32
    cos       approx ftz? f32
    lg2       approx ftz? f32
    ex2       approx ftz? f32
    ex2       approx HALF
    ex2       approx ftz BHALF
    tanh      approx f32|HALF|BHALF
    copysign  f32|f64
    testp     PROPERTY f32|f64

    and       BITS|pred
    or        BITS|pred
    xor       BITS|pred
    not       BITS|pred
    cnot      BITS
    lop3      b32
    shl       BITS
    shr       BITS|INT
    shf       l|r wrap|clamp b32
    bfe       CARRY
    bfi       b32|b64
    bfind     shiftamt? CARRY
    brev      b32|b64
    clz       b32|b64
    popc      b32|b64
    prmt      b32
    prmt      f4e|b4e|rc8|ecl|ecr|rc16 b32
    szext     wrap|clamp u32|s32
    bmsk      wrap|clamp b32
    fns       b32

    setp      EQUAL JOIN? BITS
    setp      ORDER JOIN? s16|s32|s64
    setp      UNSIGNED JOIN? u16|u32|u64
    setp      FLOAT JOIN? ftz? f32|HALF
    setp      FLOAT JOIN? f64|BHALF
    set       EQUAL JOIN? TRUTH BITS
    set       ORDER JOIN? TRUTH s16|s32|s64
    set       UNSIGNED JOIN? TRUTH u16|u32|u64
    set       FLOAT JOIN? ftz? u32|s32|f32|f16 f32
    set       FLOAT JOIN? bf16 f16|f32
    set       FLOAT JOIN? TRUTH f64
    set       FLOAT JOIN? ftz? u16|s16|u32|s32|f16 f16
    set       FLOAT JOIN? u16|s16|u32|s32|bf16 bf16
    set       FLOAT JOIN? ftz? u32|s32|f16x2 f16x2
    set       FLOAT JOIN? u32|s32|bf16x2 bf16x2

    cvt       ALL_INT ALL_INT
    cvt       sat u8 s8|INT
    cvt       sat s8 u8|INT
    cvt       sat u16 s8|s16|CARRY
    cvt       sat s16 u16|CARRY
    cvt       sat u32 s8|s16|s32|u64|s64
    cvt       sat s32 u32|u64|s64
    cvt       sat u64 s8|s16|s32|s64
    cvt       sat s64 u64
    cvt       ROUND ftz? sat? f32 ALL_INT
    cvt       ROUND sat? f16|f64 ALL_INT
    cvt       ROUND bf16 INT
    cvt       INTEGRAL ftz? sat? ALL_INT f32
    cvt       INTEGRAL sat? ALL_INT f16|f64
    cvt       INTEGRAL INT bf16
    cvt       INTEGRAL ftz? sat? f32 f32
    cvt       INTEGRAL sat? f16 f16
    cvt       INTEGRAL bf16 bf16
    cvt       INTEGRAL sat? f64 f64
    cvt       ftz? sat? f32 f16|f32
    cvt       f32|f64|bf16 bf16
    cvt       sat? f16 f16
    cvt       sat? f64 f16|f64
    cvt       ftz? sat? f64 f32
    cvt       ROUND ftz? sat? f16 f32
    cvt       ROUND ftz? bf16 f32
    cvt       rn|rz relu f16|bf16|f16x2|bf16x2 f32
    cvt       rn|rz f16x2|bf16x2 f32
    cvt       rn satfinite relu? e4m3x2|e5m2x2 f32
    cvt       rn satfinite relu? e4m3x2|e5m2x2 f16x2
    cvt       rn relu? f16x2 e4m3x2|e5m2x2
    cvt       rna satfinite? tf32 f32
    cvt       rn|rz relu? tf32 f32
    cvt       ROUND ftz? sat? f32 f64
    cvt       ROUND sat? f16 f64
    cvt       ROUND bf16 f16|f64
    cvt       ROUND f16 bf16
";

const MEMORY: &str = "
    ld        weak? STATE|local|const|PARAM? ca|cg|cs|lu|cv? EVICT? AHEAD? VECTOR? STORED
    ld        volatile STATE? AHEAD? VECTOR? STORED
    ld        relaxed|acquire SCOPE STATE? EVICT? AHEAD? VECTOR? STORED
    ld        weak? global? ca|cg|cs|lu|cv? EVICT? HINT AHEAD? VECTOR? STORED
    ld        relaxed|acquire SCOPE global? EVICT? HINT AHEAD? VECTOR? STORED
    ld        mmio relaxed sys global? STORED
    ld        global ca|cg|cs? nc EVICT? HINT? AHEAD? VECTOR? STORED
    ldu       global? VECTOR? STORED
    st        weak? STATE|local|param|param::func? wb|cg|cs|wt? EVICT? VECTOR? STORED
    st        volatile STATE? VECTOR? STORED
    st        relaxed|release SCOPE STATE? EVICT? VECTOR? STORED
    st        weak? global? wb|cg|cs|wt? EVICT? HINT VECTOR? STORED
    st        relaxed|release SCOPE global? EVICT? HINT VECTOR? STORED
    st        mmio relaxed sys global? STORED
    prefetch  global|local? L1|L2
    prefetch  global L2::evict_last|L2::evict_normal
    prefetchu L1
    applypriority global? L2::evict_normal
    discard   global? L2
    isspacep  STATE|local|param|param::entry
    createpolicy fractional PRIORITY SECOND? b64
    createpolicy range global? PRIORITY SECOND? b64
    createpolicy cvt L2 b64
    cp        async ca|cg SHARED global HINT? AHEAD?
    cp        async commit_group|wait_group|wait_all
    cp        async mbarrier arrive noinc? SHARED? b64
    cp        async bulk shared::cluster|shared::cta global mbarrier::complete_tx::bytes HINT?
    cp        async bulk global shared::cta bulk_group HINT?
    cp        async bulk prefetch L2 global HINT?
    cp        async bulk commit_group
    cp        async bulk wait_group read?
    cp        reduce async bulk global shared::cta bulk_group HINT? add u32|s32|u64|f32|f64
    cp        reduce async bulk global shared::cta bulk_group HINT? add noftz f16|bf16
    cp        reduce async bulk global shared::cta bulk_group HINT? min|max CARRY
    cp        reduce async bulk global shared::cta bulk_group HINT? inc|dec u32
    cp        reduce async bulk global shared::cta bulk_group HINT? and|or|xor b32|b64

    atom      relaxed|acquire|release|acq_rel? SCOPE? STATE? add u32|s32|u64|f32|f64
    atom      relaxed|acquire|release|acq_rel? SCOPE? STATE? add noftz HALF|BHALF
    atom      relaxed|acquire|release|acq_rel? SCOPE? STATE? min|max CARRY
    atom      relaxed|acquire|release|acq_rel? SCOPE? STATE? inc|dec u32
    atom      relaxed|acquire|release|acq_rel? SCOPE? STATE? and|or|xor|exch b32|b64
    atom      relaxed|acquire|release|acq_rel? SCOPE? STATE? cas BITS
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? add HINT u32|s32|u64|f32|f64
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? add noftz HINT HALF|BHALF
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? min|max HINT CARRY
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? inc|dec HINT u32
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? and|or|xor|exch HINT b32|b64
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? add HINT? VECTOR f32
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? add noftz HINT? v2|v4|v8 f16|bf16
    atom      relaxed|acquire|release|acq_rel? SCOPE? global? add noftz HINT? VECTOR f16x2|bf16x2
    red       relaxed|release? SCOPE? STATE? add u32|s32|u64|f32|f64
    red       relaxed|release? SCOPE? STATE? add noftz HALF|BHALF
    red       relaxed|release? SCOPE? STATE? min|max CARRY
    red       relaxed|release? SCOPE? STATE? inc|dec u32
    red       relaxed|release? SCOPE? STATE? and|or|xor b32|b64
    red       relaxed|release? SCOPE? global? add HINT u32|s32|u64|f32|f64
    red       relaxed|release? SCOPE? global? add noftz HINT HALF|BHALF
    red       relaxed|release? SCOPE? global? min|max HINT CARRY
    red       relaxed|release? SCOPE? global? inc|dec HINT u32
    red       relaxed|release? SCOPE? global? and|or|xor HINT b32|b64
    red       relaxed|release? SCOPE? global? add HINT? VECTOR f32
    red       relaxed|release? SCOPE? global? add noftz HINT? v2|v4|v8 f16|bf16
    red       relaxed|release? SCOPE? global? add noftz HINT? VECTOR f16x2|bf16x2
";

const SYNC: &str = "
    bar       cta? sync|arrive
    bar       cta? red popc u32
    bar       cta? red and|or pred
    bar       warp sync
    barrier   cta? sync|arrive aligned?
    barrier   cta? red popc aligned? u32
    barrier   cta? red and|or aligned? pred
    membar    cta|gl|sys
    fence     sc|acq_rel|acquire|release? SCOPE
    fence     mbarrier_init release cluster
    fence     proxy alias
    fence     proxy async global|shared::cta|shared::cluster?
    mbarrier  init|inval SHARED? b64
    mbarrier  expect_tx|complete_tx REMOTE? b64
    mbarrier  expect_tx|complete_tx relaxed cta|cluster REMOTE? b64
    mbarrier  arrive|arrive_drop expect_tx? REMOTE? b64
    mbarrier  arrive|arrive_drop expect_tx? release|relaxed cta|cluster REMOTE? b64
    mbarrier  arrive|arrive_drop noComplete SHARED? b64
    mbarrier  arrive|arrive_drop noComplete release cta SHARED? b64
    mbarrier  test_wait|try_wait parity? SHARED? b64
    mbarrier  test_wait|try_wait parity? acquire|relaxed cta|cluster SHARED? b64
    mbarrier  pending_count b64
    shfl      sync up|down|bfly|idx b32
    vote      sync all|any|uni pred
    vote      sync ballot b32
    match     any|all sync b32|b64
    redux     sync add|min|max u32|s32
    redux     sync and|or|xor b32
    activemask b32
    elect     sync
    nanosleep u32
    griddepcontrol launch_dependents|wait
    .branchtargets
    .calltargets
    .callprototype
";

const MATRIX: &str = "
    mma       sync aligned m16n8k8|m16n8k16 row col f16 f16 f16 f16
    mma       sync aligned m16n8k8|m16n8k16 row col f32 f16 f16 f32
    mma       sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32
    mma       sync aligned m16n8k4|m16n8k8 row col tf32 tf32 f32 f32
    mma       sync aligned m8n8k4|m16n8k4|m16n8k8|m16n8k16 row col ROUND? f64 f64 f64 f64
    mma       sync aligned m8n8k16|m16n8k16|m16n8k32 row col satfinite? s32 u8|s8 u8|s8 s32
    mma       sync aligned m8n8k32|m16n8k32|m16n8k64 row col satfinite? u4|s4 u4|s4 s32 s32
    mma       sync aligned m8n8k128|m16n8k128|m16n8k256 row col and|xor popc b1 b1 s32 s32
    wmma      mma sync aligned row|col row|col WMMA f16|f32 f16|f32
    wmma      mma sync aligned row|col row|col WMMA f32 bf16 bf16 f32
    wmma      mma sync aligned row|col row|col m16n16k8 tf32 tf32 f32 f32
    wmma      mma sync aligned row|col row|col m8n8k4 ROUND? f64 f64 f64 f64
    wmma      mma sync aligned row|col row|col WMMA satfinite? s32 s8 s8 s32
    wmma      mma sync aligned row|col row|col WMMA satfinite? s32 u8 u8 s32
    wmma      load a|b sync aligned row|col WMMA STATE? f16|bf16|u8|s8
    wmma      load c sync aligned row|col WMMA STATE? f16|f32|s32
    wmma      load a|b sync aligned row|col m16n16k8 STATE? tf32
    wmma      load c sync aligned row|col m16n16k8 STATE? f32
    wmma      load a|b|c sync aligned row|col m8n8k4 STATE? f64
    wmma      store d sync aligned row|col WMMA STATE? f16|f32|s32
    wmma      store d sync aligned row|col m16n16k8 STATE? f32
    wmma      store d sync aligned row|col m8n8k4 STATE? f64
    ldmatrix  sync aligned m8n8 x1|x2|x4 trans? SHARED? b16
    stmatrix  sync aligned m8n8 x1|x2|x4 trans? SHARED? b16
    movmatrix sync aligned m8n8 trans b16
";

/// The part of the decoder that handles an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Branches, calls and addresses.
    Control,
    /// Instructions that work lane by lane.
    Lanes,
    Memory,
    /// Barriers, fences and warp collectives.
    Sync,
    /// Matrix instructions.
    Matrix,
}

/// One line of the tables.
#[derive(Debug)]
pub struct Form {
    /// The instruction's name.
    pub name: &'static str,
    family: Family,
    /// The alternatives of each modifier, and whether it is optional.
    modifiers: Vec<(Vec<&'static str>, bool)>,
    types: Vec<Vec<&'static str>>,
}

static FORMS: LazyLock<HashMap<&str, Vec<Form>>> = LazyLock::new(|| {
    let mut groups = HashMap::new();
    for line in GROUPS.lines() {
        if let [name, words] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let words = expand(&groups, words);
            groups.insert(name, words);
        }
    }
    let mut forms: HashMap<&str, Vec<Form>> = HashMap::new();
    let families = [
        (Family::Control, CONTROL),
        (Family::Lanes, LANES),
        (Family::Memory, MEMORY),
        (Family::Sync, SYNC),
        (Family::Matrix, MATRIX),
    ];
    for (family, text) in families {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let mut form = Form { name, family, modifiers: Vec::new(), types: Vec::new() };
            for word in words {
                let alternatives = expand(&groups, word.trim_end_matches('?'));
                if alternatives.iter().all(|word| parse_type(word).is_some()) {
                    form.types.push(alternatives);
                } else {
                    form.modifiers.push((alternatives, word.ends_with('?')));
                }
            }
            forms.entry(name).or_default().push(form);
        }
    }
    forms
});

/// Expands the alternatives `a|GROUP|b`.
fn expand(groups: &HashMap<&str, Vec<&'static str>>, words: &'static str) -> Vec<&'static str> {
    words.split('|').flat_map(|word| groups.get(word).cloned().unwrap_or(vec![word])).collect()
}

impl Form {
    /// All words of the form.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        let modifiers = self.modifiers.iter().flat_map(|(alternatives, _)| alternatives);
        modifiers.chain(self.types.iter().flatten()).copied()
    }

    /// Whether an instruction of this name has this form.
    pub fn fits(&self, instruction: &Instruction) -> bool {
        let words = instruction.modifiers.iter().map(String::as_str);
        let (types, mut left): (Vec<&str>, Vec<&str>) = words.partition(|word| parse_type(word).is_some());
        types.len() == self.types.len()
            && self.types.iter().zip(types).all(|(alternatives, ty)| alternatives.contains(&ty))
            && self.modifiers.iter().all(|(alternatives, optional)| {
                let place = left.iter().position(|word| alternatives.contains(word));
                place.map(|place| left.remove(place)).is_some() || *optional
            })
            && left.is_empty()
    }
}

/// The part of the decoder that handles the instruction. `None` if no form fits.
pub fn find(instruction: &Instruction) -> Option<Family> {
    let forms = FORMS.get(instruction.name.as_str())?;
    forms.iter().find(|form| form.fits(instruction)).map(|form| form.family)
}

pub fn all() -> impl Iterator<Item = &'static Form> {
    FORMS.values().flatten()
}
