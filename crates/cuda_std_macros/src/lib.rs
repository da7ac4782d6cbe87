//! The `#[kernel]` attribute of `cuda_std`, which re-exports it.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Error, Expr, FnArg, ItemFn, MetaNameValue, ReturnType, parse_macro_input, parse_quote};

/// Makes an `unsafe fn` the entry point of a GPU kernel, with the function's name in the PTX.
///
/// The function must be `unsafe` and not generic; it takes `Copy` arguments and returns nothing. On other
/// targets than NVPTX it remains an ordinary function, so that editors and `cargo check` see it.
///
/// `name = "…"` gives the kernel another name in the PTX. It may be any constant string expression that the
/// `export_name` attribute takes, such as `concat!`; with that, a macro can instantiate a generic kernel.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    let export = if arguments.is_empty() {
        quote!(no_mangle)
    } else {
        let named = parse_macro_input!(arguments as MetaNameValue);
        if !named.path.is_ident("name") {
            return error(&named.path, "the one argument of #[kernel] is `name = \"…\"`");
        }
        let name: Expr = named.value;
        quote!(export_name = #name)
    };

    let signature = &function.sig;
    if signature.unsafety.is_none() {
        return error(
            signature.fn_token,
            "a kernel must be an `unsafe fn`: its launch upholds its safety contract",
        );
    }
    if !signature.generics.params.is_empty() {
        return error(&signature.generics, "a kernel cannot be generic: call a generic function from it");
    }
    if let ReturnType::Type(..) = signature.output {
        return error(&signature.output, "a kernel returns nothing: write results through a pointer");
    }
    let mut types = Vec::new();
    for input in &signature.inputs {
        match input {
            FnArg::Typed(argument) => types.push(&argument.ty),
            FnArg::Receiver(receiver) => return error(receiver, "a kernel cannot be a method"),
        }
    }

    let mut on_device = function.clone();
    on_device.sig.abi = Some(parse_quote!(extern "ptx-kernel"));
    on_device.block.stmts.insert(
        0,
        parse_quote! {
            const _: () = {
                const fn argument_is_copy<T: Copy>() {}
                #( argument_is_copy::<#types>(); )*
            };
        },
    );
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(#export)]
        #on_device

        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        #function
    }
    .into()
}

fn error(at: impl quote::ToTokens, message: &str) -> TokenStream {
    Error::new_spanned(at, message).to_compile_error().into()
}
