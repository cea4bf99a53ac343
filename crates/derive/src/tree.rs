//! The expansion of `#[derive(Tree)]`.
//!
//! Every field gets a plan: its own type, with the leaf parameter replaced by `Here`, nested trees
//! by `Nested` and static data by `Static`. The traversals themselves are written once, in
//! `bilevel_graph::tree::plan`; the code generated here only destructures, calls the plan of each
//! field, and constructs.

use crate::dependency::name_of;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, GenericArgument, GenericParam, LitStr, Member, Path, PathArguments,
    Result, Type, TypePath,
};

/// The longest tuple that has a plan.
const MAX_TUPLE: usize = 8;

/// The three traversals, which differ in their names and in how the leaves are held.
#[derive(Clone, Copy)]
enum Pass {
    Walk,
    Map,
    IntoMap,
}

/// The shared data of the expansion.
struct Context {
    /// The path of the crate that defines `Tree`.
    krate: TokenStream,
    /// The parameter that stands for the leaves.
    leaf: Ident,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    if let Data::Union(data) = &input.data {
        return Err(Error::new(
            data.union_token.span,
            "#[derive(Tree)] works on structs and enums: which field of a union holds leaves is \
             not known, use an enum",
        ));
    }
    let context = Context { krate: crate_path(&input.attrs)?, leaf: leaf_parameter(input)? };
    reject_bounds(input, &context.leaf)?;

    let variants = variants(input, &context)?;
    let walk = body(&variants, &context, Pass::Walk);
    let map = body(&variants, &context, Pass::Map);
    let into_map = body(&variants, &context, Pass::IntoMap);

    let Context { krate, leaf } = &context;
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let with_arguments = input.generics.params.iter().map(|param| match param {
        GenericParam::Lifetime(lifetime) => lifetime.lifetime.to_token_stream(),
        GenericParam::Type(_) => quote!(__U),
        GenericParam::Const(constant) => constant.ident.to_token_stream(),
    });

    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Tree for #name #type_generics #where_clause {
            type Leaf = #leaf;
            type With<__U> = #name<#(#with_arguments),*>;

            fn walk<'__a>(
                &'__a self,
                __path: &mut #krate::tree::Path,
                __f: &mut dyn ::core::ops::FnMut(&str, #krate::tree::Node<'__a, #leaf>),
            ) {
                #walk
            }

            fn try_map_at<'__a, __U, __E>(
                &'__a self,
                __path: &mut #krate::tree::Path,
                __f: &mut dyn ::core::ops::FnMut(
                    &str,
                    &'__a #leaf,
                ) -> ::core::result::Result<__U, __E>,
            ) -> ::core::result::Result<Self::With<__U>, __E> {
                #map
            }

            fn try_into_map_at<__U, __E>(
                self,
                __path: &mut #krate::tree::Path,
                __f: &mut dyn ::core::ops::FnMut(
                    &str,
                    #leaf,
                ) -> ::core::result::Result<__U, __E>,
            ) -> ::core::result::Result<Self::With<__U>, __E> {
                #into_map
            }
        }
    })
}

/// The path of `bilevel_graph` in the crate that uses the macro: among its own dependencies, or inside `bilevel`.
fn default_path() -> TokenStream {
    let name = |package| name_of(package).map(|name| Ident::new(&name, Span::call_site()));
    match (name("bilevel-graph"), name("bilevel")) {
        (Some(graph), _) => quote!(::#graph),
        (None, Some(bilevel)) => quote!(::#bilevel::graph),
        (None, None) => quote!(::bilevel_graph),
    }
}

/// `#[tree(crate = "...")]`, or the path given by the dependencies.
fn crate_path(attributes: &[Attribute]) -> Result<TokenStream> {
    let mut path = default_path();
    for attribute in attributes.iter().filter(|a| a.path().is_ident("tree")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("crate") {
                let given: Path = meta.value()?.parse::<LitStr>()?.parse()?;
                path = given.into_token_stream();
                Ok(())
            } else {
                Err(meta.error("unknown option: the only one is `crate = \"path::of::bilevel_graph\"`"))
            }
        })?;
    }
    Ok(path)
}

/// The one type parameter, or an error on the item.
fn leaf_parameter(input: &DeriveInput) -> Result<Ident> {
    let mut parameters = input.generics.type_params();
    match (parameters.next(), parameters.next()) {
        (Some(leaf), None) => Ok(leaf.ident.clone()),
        (found, _) => {
            let many = found.is_some();
            let name = &input.ident;
            Err(Error::new_spanned(
                name,
                format!(
                    "#[derive(Tree)] needs exactly one type parameter, the type of the leaves: {}",
                    if many {
                        format!("`{name}` has several")
                    } else {
                        format!("write `{name}<T>` and use `T` for the leaves")
                    }
                ),
            ))
        }
    }
}

/// A bound on the leaves could not hold for the leaves a mapping produces.
fn reject_bounds(input: &DeriveInput, leaf: &Ident) -> Result<()> {
    let error = |spanned: &dyn ToTokens| {
        Error::new_spanned(
            spanned.to_token_stream(),
            format!(
                "#[derive(Tree)] needs `{leaf}` without bounds, because mapping puts any other \
                 type in its place: move the bound to the functions which need it"
            ),
        )
    };
    for parameter in input.generics.type_params() {
        if !parameter.bounds.is_empty() {
            return Err(error(&parameter.bounds));
        }
    }
    for predicate in input.generics.where_clause.iter().flat_map(|w| &w.predicates) {
        if mentions(predicate, leaf) {
            return Err(error(predicate));
        }
    }
    Ok(())
}

/// A struct, or one variant of an enum.
struct Variant {
    /// How it is written in patterns and expressions.
    constructor: TokenStream,
    /// Its name, for enums only.
    name: Option<String>,
    fields: Vec<Field>,
}

struct Field {
    member: Member,
    /// Its name in paths.
    segment: String,
    binding: Ident,
    ty: Type,
    plan: TokenStream,
}

fn variants(input: &DeriveInput, context: &Context) -> Result<Vec<Variant>> {
    let item = &input.ident;
    match &input.data {
        Data::Struct(data) => {
            Ok(vec![Variant { constructor: quote!(#item), name: None, fields: fields(&data.fields, context)? }])
        }
        Data::Enum(data) => (data.variants.iter())
            .map(|variant| {
                let ident = &variant.ident;
                reject_attributes(&variant.attrs)?;
                Ok(Variant {
                    constructor: quote!(#item::#ident),
                    name: Some(ident.unraw().to_string()),
                    fields: fields(&variant.fields, context)?,
                })
            })
            .collect(),
        // Refused before.
        Data::Union(_) => Ok(Vec::new()),
    }
}

fn fields(fields: &Fields, context: &Context) -> Result<Vec<Field>> {
    (fields.iter().zip(fields.members()).enumerate())
        .map(|(index, (field, member))| {
            reject_attributes(&field.attrs)?;
            Ok(Field {
                segment: match &member {
                    Member::Named(name) => name.unraw().to_string(),
                    Member::Unnamed(index) => index.index.to_string(),
                },
                member,
                binding: format_ident!("__field{index}"),
                ty: field.ty.clone(),
                plan: context.plan(&field.ty)?,
            })
        })
        .collect()
}

fn reject_attributes(attributes: &[Attribute]) -> Result<()> {
    match attributes.iter().find(|a| a.path().is_ident("tree")) {
        Some(attribute) => Err(Error::new_spanned(
            attribute,
            "`#[tree(...)]` goes on the item, not on its fields: a field whose type does not \
             mention the leaf parameter is carried along as static data already",
        )),
        None => Ok(()),
    }
}

/// The body of one traversal.
fn body(variants: &[Variant], context: &Context, pass: Pass) -> TokenStream {
    let Context { krate, leaf } = context;
    let arms = variants.iter().map(|variant| {
        let Variant { constructor, name, fields } = variant;
        let pattern = fields.iter().map(|Field { member, binding, .. }| quote!(#member: #binding));
        let calls = fields.iter().map(|field| {
            let Field { segment, binding, ty, plan, .. } = field;
            let method = match pass {
                Pass::Walk => quote!(walk),
                Pass::Map => quote!(try_map),
                Pass::IntoMap => quote!(try_into_map),
            };
            // Errors about the type of a field point at that type.
            let call = quote_spanned! {ty.span().resolved_at(Span::mixed_site())=>
                <#plan as #krate::tree::plan::Plan<#ty, #leaf>>::#method
            };
            quote!(__path.within(#segment, |__path| #call(#binding, __path, __f)))
        });
        let result = match pass {
            Pass::Walk => {
                let variant = name.iter().map(|name| quote!(__f(__path.as_str(), #krate::tree::Node::Variant(#name));));
                quote!({ #(#variant)* #(#calls;)* })
            }
            Pass::Map | Pass::IntoMap => {
                let members = fields.iter().map(|field| &field.member);
                quote!(::core::result::Result::Ok(#constructor { #(#members: #calls?),* }))
            }
        };
        quote!(#constructor { #(#pattern),* } => #result)
    });
    quote!(match self { #(#arms,)* })
}

impl Context {
    /// The plan of a type: see the head of this file.
    fn plan(&self, ty: &Type) -> Result<TokenStream> {
        let krate = &self.krate;
        match ty {
            Type::Paren(paren) => return self.plan(&paren.elem),
            Type::Group(group) => return self.plan(&group.elem),
            _ if !mentions(ty, &self.leaf) => return Ok(quote!(#krate::tree::plan::Static)),
            _ => {}
        }
        match ty {
            Type::Path(path) if self.is_leaf(path) => Ok(quote!(#krate::tree::plan::Here)),
            Type::Path(path) => self.path_plan(path),
            Type::Tuple(tuple) if tuple.elems.len() > MAX_TUPLE => Err(Error::new_spanned(
                ty,
                format!(
                    "#[derive(Tree)] walks tuples of up to {MAX_TUPLE} elements: use a struct, \
                     whose fields have names"
                ),
            )),
            Type::Tuple(tuple) => {
                let plans = (tuple.elems.iter()).map(|elem| self.plan(elem)).collect::<Result<Vec<_>>>()?;
                Ok(quote!((#(#plans,)*)))
            }
            Type::Array(array) => {
                let plan = self.plan(&array.elem)?;
                let len = &array.len;
                Ok(quote!([#plan; #len]))
            }
            Type::Macro(_) => Ok(quote!(#krate::tree::plan::Nested)),
            _ => Err(self.unsupported(ty)),
        }
    }

    fn path_plan(&self, path: &TypePath) -> Result<TokenStream> {
        let krate = &self.krate;
        let nested = || Ok(quote!(#krate::tree::plan::Nested));
        let segments = &path.path.segments;
        if path.qself.is_some() || segments.first().is_some_and(|s| s.ident == self.leaf) {
            return Err(self.unsupported(path));
        }
        let Some(last) = segments.last() else {
            return nested();
        };
        let standard = segments.len() == 1
            || (segments.first()).is_some_and(|s| s.ident == "std" || s.ident == "alloc")
            || (segments.first()).is_some_and(|s| s.ident == "core");
        let PathArguments::AngleBracketed(arguments) = &last.arguments else {
            return nested();
        };
        let types: Vec<&Type> = (arguments.args.iter())
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
            .collect();
        if !standard || types.len() != arguments.args.len() {
            return nested();
        }
        match (last.ident.to_string().as_str(), types.as_slice()) {
            ("Vec", [elem]) => {
                let plan = self.plan(elem)?;
                Ok(quote!(::std::vec::Vec<#plan>))
            }
            ("Option", [elem]) => {
                let plan = self.plan(elem)?;
                Ok(quote!(::core::option::Option<#plan>))
            }
            ("Box", [elem]) => {
                let plan = self.plan(elem)?;
                Ok(quote!(::std::boxed::Box<#plan>))
            }
            ("BTreeMap", [key, elem]) => {
                if mentions(key, &self.leaf) {
                    return Err(Error::new_spanned(
                        key,
                        "#[derive(Tree)] names the leaves of a map by its keys, so the keys \
                         cannot be leaves: use `BTreeMap<String, _>`",
                    ));
                }
                let plan = self.plan(elem)?;
                Ok(quote!(::std::collections::BTreeMap<#key, #plan>))
            }
            _ => nested(),
        }
    }

    /// Whether the type is the leaf parameter itself.
    fn is_leaf(&self, path: &TypePath) -> bool {
        path.qself.is_none() && path.path.is_ident(&self.leaf)
    }

    fn unsupported(&self, ty: &dyn ToTokens) -> Error {
        let leaf = &self.leaf;
        Error::new_spanned(
            ty.to_token_stream(),
            format!(
                "#[derive(Tree)] cannot walk this type: leaves are owned, as `{leaf}`, as \
                 `Vec`, `Option`, `Box`, `BTreeMap<String, _>`, arrays or tuples of `{leaf}`, or \
                 in another type which implements `Tree`"
            ),
        )
    }
}

/// Whether the parameter, or `Self`, which depends on it, is named.
fn mentions(item: &impl ToTokens, leaf: &Ident) -> bool {
    fn scan(tokens: TokenStream, leaf: &Ident) -> bool {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |index: Option<usize>, expected: char| {
            index
                .and_then(|index| tokens.get(index))
                .is_some_and(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == expected))
        };
        tokens.iter().enumerate().any(|(index, token)| match token {
            TokenTree::Group(group) => scan(group.stream(), leaf),
            TokenTree::Ident(ident) => {
                let before = index.checked_sub(1);
                // `'T` is a lifetime, `module::T` another item, `Trait<T = X>` an associated type.
                let other = punct(before, '\'')
                    || (punct(before, ':') && punct(index.checked_sub(2), ':'))
                    || punct(Some(index + 1), '=');
                (ident == leaf || ident == "Self") && !other
            }
            _ => false,
        })
    }
    scan(item.to_token_stream(), leaf)
}
