fn main() {
    cuda_builder::CudaBuilder::new(".").embed().unwrap();
}
