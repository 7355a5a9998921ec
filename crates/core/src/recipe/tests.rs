//! Promises of recipes: text and back without a change, all faults at once, sizes known in advance.

use super::*;
use crate::ErrorKind;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn size() -> impl Strategy<Value = Size> {
    let side = 1u32..=65_535;
    prop_oneof![side.clone().prop_map(Size::Side), [side.clone(), side].prop_map(Size::Exact)]
}

fn interval() -> impl Strategy<Value = Interval> {
    (1e-9f64..=1.0, 1e-9f64..=1.0).prop_map(|(a, b)| [a.min(b), a.max(b)])
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::Nearest), Just(Filter::Bilinear), Just(Filter::Bicubic), Just(Filter::Lanczos)]
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    prop_oneof![Just(Interpolation::Nearest), Just(Interpolation::Bilinear)]
}

fn image_op() -> impl Strategy<Value = Op> {
    let p = 0.0f64..=1.0;
    prop_oneof![
        (size(), filter()).prop_map(|(size, filter)| Op::Resize { size, filter }),
        size().prop_map(|size| Op::CenterCrop { size }),
        (size(), 0u32..=100).prop_map(|(size, padding)| Op::RandomCrop { size, padding }),
        (size(), interval(), interval(), filter())
            .prop_map(|(size, scale, ratio, filter)| Op::RandomResizedCrop { size, scale, ratio, filter }),
        (p.clone(), prop_oneof![Just(Direction::Horizontal), Just(Direction::Vertical)])
            .prop_map(|(p, direction)| Op::Flip { p, direction }),
        any::<u8>().prop_map(|value| Op::Pad { border: [0; 4], value }),
        (0.0f64..9.0, 0.0f64..9.0, 0.0f64..9.0, 0.0f64..=0.5).prop_map(
            |(brightness, contrast, saturation, hue)| {
                Op::ColorJitter { brightness, contrast, saturation, hue }
            }
        ),
        p.clone().prop_map(|p| Op::Grayscale { p }),
        (0u32..500, interval(), p.clone()).prop_map(|(half, sigma, p)| Op::GaussianBlur(GaussianBlur {
            kernel: 2 * half + 1,
            sigma,
            p
        })),
        (0.0f64..=255.0, p.clone()).prop_map(|(threshold, p)| Op::Solarize(Solarize { threshold, p })),
        (0u8..=8, p.clone()).prop_map(|(bits, p)| Op::Posterize(Posterize { bits, p })),
        p.clone().prop_map(|p| Op::Equalize { p }),
        p.clone().prop_map(|p| Op::Autocontrast { p }),
        (0.0f64..99.0, p.clone()).prop_map(|(factor, p)| Op::Sharpness(Sharpness { factor, p })),
        (interval(), [0.0f64..=1.0, 0.0f64..=1.0], interval(), -80.0f64..0.0, interpolation(), any::<u8>())
            .prop_map(|(degrees, translate, scale, low, interpolation, fill)| {
                let shear = [low, -low, 0.0, -low];
                Op::Affine(Affine { degrees, translate, scale, shear, interpolation, fill })
            }),
        (0u32..=64, 0u32..31, interpolation(), any::<u8>()).prop_map(
            |(n, magnitude, interpolation, fill)| {
                Op::RandAugment(RandAugment { n, magnitude, bins: 31, interpolation, fill })
            }
        ),
        (2u32..=65_536, interpolation(), any::<u8>()).prop_map(|(bins, interpolation, fill)| {
            Op::TrivialAugment(TrivialAugment { bins, interpolation, fill })
        }),
        (p.clone(), p.clone(), interpolation(), any::<u8>()).prop_map(
            |(distortion, p, interpolation, fill)| {
                Op::Perspective(Perspective { distortion, p, interpolation, fill })
            }
        ),
        (prop::sample::select(vec![Policy::Imagenet, Policy::Cifar10, Policy::Svhn]), interpolation())
            .prop_map(|(policy, interpolation)| Op::AutoAugment(AutoAugment {
                policy,
                interpolation,
                fill: 3
            })),
        (1u32..=10, 1u32..=16, 0u32..=16, 0.01f64..1000.0, any::<bool>(), interpolation()).prop_map(
            |(severity, width, depth, alpha, all_ops, interpolation)| {
                Op::AugMix(AugMix { severity, width, depth, alpha, all_ops, interpolation, fill: 9 })
            }
        ),
        (p, interval(), interval(), 0.0f64..=255.0).prop_map(|(p, scale, ratio, value)| Op::RandomErasing {
            p,
            scale,
            ratio,
            value
        }),
        (0.0f64..10.0).prop_map(|seconds| Op::Delay { seconds }),
    ]
}

/// Any sound recipe of an image and some other columns.
pub(super) fn any_recipe() -> impl Strategy<Value = Recipe> {
    let mode = prop_oneof![Just(ImageMode::Rgb), Just(ImageMode::Gray), Just(ImageMode::Rgba)];
    let normalize = proptest::option::of((vec(-1.0f64..2.0, 4), vec(1e-6f64..2.0, 4)));
    let image = (mode, any::<bool>(), 1u64..=1 << 40, vec(image_op(), 0..6), normalize, any::<bool>());
    let image = image.prop_map(|(mode, upright, max_pixels, mut ops, normalize, hwc)| {
        let channels = mode.channels();
        ops.extend(normalize.map(|(mean, std)| Op::Normalize {
            mean: mean[..channels].to_vec(),
            std: std[..channels].to_vec(),
        }));
        let orientation = if upright { Orientation::Apply } else { Orientation::Ignore };
        FieldRecipe {
            field: "jpg;png".into(),
            name: None,
            decode: Decode::Image { mode, orientation, max_pixels },
            ops,
            dtype: None,
            layout: if hwc { Layout::Hwc } else { Layout::Chw },
            follow: None,
        }
    });
    let decode = prop_oneof![
        proptest::option::of(vec(1usize..100, 0..4)).prop_map(|shape| Decode::Npy { shape }),
        Just(Decode::Json {}),
        Just(Decode::Text {}),
        Just(Decode::Label {}),
        Just(Decode::Bytes {}),
    ];
    let other = (decode, "[a-z.\" é]{0,8}").prop_map(|(decode, name)| (decode, format!("x{name}")));
    (image, vec(other, 0..4)).prop_map(|(image, others)| {
        let others = others.into_iter().enumerate().map(|(index, (decode, field))| FieldRecipe {
            name: Some(format!("{index} {field}")),
            field,
            dtype: matches!(decode, Decode::Label {}).then_some(Dtype::I32),
            decode,
            ops: Vec::new(),
            layout: Layout::default(),
            follow: None,
        });
        Recipe { fields: std::iter::once(image).chain(others).collect(), ops: Vec::new() }
    })
}

proptest! {
    #[test]
    fn a_recipe_survives_json_and_toml_unchanged(recipe in any_recipe()) {
        prop_assert_eq!(recipe.check(), Vec::<String>::new());
        let from_json = Recipe::from_json(&recipe.to_json()).unwrap();
        let from_toml = Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap();
        for read in [from_json, from_toml] {
            prop_assert_eq!(read.fingerprint(), recipe.fingerprint());
            prop_assert_eq!(&read, &recipe);
        }
    }

    #[test]
    fn no_json_makes_reading_panic(text in "[\\[\\]{}\":,a-z0-9.]{0,60}") {
        let _ = Recipe::from_json(&text);
        let _ = Recipe::from_toml(&text);
    }
}

const TRAIN: &str = r#"
[[recipe]]
field = "jpg;jpeg;png"
name = "image"
decode = { kind = "image" }
ops = [
    { op = "random_resized_crop", size = 224 },
    { op = "flip" },
    { op = "normalize", mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] },
]

[[recipe]]
field = "cls"
decode = "label"
"#;

fn train_json() -> Value {
    json!([
        {
            "field": "jpg;jpeg;png", "name": "image", "decode": {"kind": "image", "mode": "rgb"},
            "ops": [
                {"op": "random_resized_crop", "size": 224, "scale": [0.08, 1]},
                {"op": "flip", "p": 0.5},
                {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
            ]
        },
        {"field": "cls", "decode": {"kind": "label"}, "ops": []}
    ])
}

#[test]
fn the_fingerprint_is_the_same_from_toml_and_json_and_never_changes_between_releases() {
    let recipe = Recipe::from_toml(TRAIN).unwrap();
    assert_eq!(recipe, Recipe::from_value(train_json()).unwrap());
    assert_eq!(recipe, Recipe::from_json(&json!({"recipe": train_json()}).to_string()).unwrap());
    let nested = TRAIN.replace("[[recipe]]", "[[train.recipe]]");
    assert_eq!(recipe, Recipe::from_toml_at(&nested, "train.recipe").unwrap());
    assert_eq!(recipe.fingerprint(), GOLDEN);
    assert_eq!(recipe.fields[0].output_dtype(), Some(Dtype::F32));
}

const GOLDEN: &str = "c6c479a708de9067e9da8b114bceba6a";

#[test]
fn every_op_and_decoder_has_a_template_with_all_of_its_parameters() {
    let ops = parse::op_templates();
    assert_eq!(ops.iter().map(|op| op["op"].as_str().unwrap()).collect::<Vec<_>>(), Op::NAMES);
    for template in ops {
        let op: Op = serde_json::from_value(template.clone()).unwrap();
        assert_eq!(template["op"], op.name());
        assert_eq!(serde_json::to_value(op).unwrap(), template);
    }
    for template in parse::decode_templates() {
        let decode: Decode = serde_json::from_value(template.clone()).unwrap();
        assert_eq!(serde_json::to_value(decode).unwrap(), template);
    }
}

/// The message of the one error that a faulty recipe gives.
fn fault(recipe: Value) -> String {
    let error = Recipe::from_value(recipe).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    error.message().to_owned()
}

#[test]
fn all_faults_are_reported_at_once_with_their_paths() {
    let message = fault(json!([
        {
            "field": "jpg;", "decode": {"kind": "image", "mode": "cmyk"}, "layuot": "chw",
            "ops": [{"op": "flip", "p": "often"}, {"op": "resise", "size": 3}, {"op": "center_crop", "size": "big"}]
        },
        {
            "field": "png", "decode": "image",
            "ops": [{"op": "center_crop"}, {"op": "flip", "p": 1.5}, {"op": "normalize", "mean": [0], "std": [0, 1, 1]}]
        },
        {"field": 7},
        3,
        {"field": "txt", "decode": "text", "ops": [{"op": "grayscale"}, {"opp": 1}], "dtype": "u8"},
        {"field": "cls", "decode": "lable", "dtype": "int"},
    ]));
    for expected in [
        "recipe[0].decode.mode: unknown variant `cmyk`",
        "recipe[0].layuot: there is no such parameter, did you mean `layout`?",
        "recipe[0].ops[0].p: invalid type",
        "recipe[0].ops[1].op: there is no `resise`, did you mean `resize`? (offered: clip, resize, center_crop,",
        "recipe[0].ops[2].size: \"big\" is neither",
        "recipe[1].ops[0].size: it is missing",
        "recipe[1].ops[1].p: 1.5 is not a probability",
        "recipe[1].ops[2].mean: 1 values are given but the image has 3 channels",
        "recipe[1].ops[2].std: a deviation is not above 0",
        "recipe[2].field: invalid type",
        "recipe[2].decode: it is missing",
        "recipe[3]: it is not a table",
        "recipe[4].ops[0]: `grayscale` works on images, but the field is decoded as text",
        "recipe[4].ops[1].op: it is missing",
        "recipe[4].dtype: text is no element type, not u8",
        "recipe[5].decode.kind: there is no `lable`, did you mean `label`?",
        "recipe[5].dtype: unknown variant `int`",
    ] {
        assert!(message.contains(expected), "{expected}\nis not in\n{message}");
    }
}

#[test]
fn each_semantic_fault_is_found() {
    let image = |ops: Value| json!([{"field": "jpg", "decode": "image", "ops": ops}]);
    let normalize = json!({"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]});
    for (recipe, expected) in [
        (json!([]), "it has no fields"),
        (json!({}), "not a list"),
        (json!([{"field": "a;;b", "decode": "bytes"}]), "recipe[0].field: `a;;b` has an empty name"),
        (json!([{"field": "a", "name": "", "decode": "bytes"}]), "recipe[0].name: it is empty"),
        (
            json!([{"field": "a;b", "decode": "bytes"}, {"field": "b", "name": "a", "decode": "bytes"}]),
            "recipe[1]: the column `a` is already made by recipe[0]",
        ),
        (image(json!([{"op": "resize", "size": 0}])), "ops[0].size"),
        (image(json!([{"op": "resize", "size": [5, 65_536]}])), "ops[0].size"),
        (image(json!([{"op": "random_crop", "size": 5, "padding": 70_000}])), "ops[0].padding"),
        (image(json!([{"op": "random_resized_crop", "size": 5, "scale": [0.5, 0.1]}])), "ops[0].scale"),
        (image(json!([{"op": "random_resized_crop", "size": 5, "scale": [0.5, 1.1]}])), "at most 1"),
        (image(json!([{"op": "random_resized_crop", "size": 5, "ratio": [0, 1]}])), "ops[0].ratio"),
        (image(json!([{"op": "pad", "border": [0, 0, 0, 65_536]}])), "ops[0].border"),
        (
            image(json!([{"op": "center_crop", "size": 65_000}, {"op": "pad", "border": [999, 0, 0, 0]}])),
            "grows",
        ),
        (image(json!([{"op": "color_jitter", "hue": 0.6}])), "ops[0].hue: 0.6"),
        (image(json!([{"op": "color_jitter", "contrast": -1}])), "ops[0].contrast: -1"),
        (image(json!([{"op": "grayscale", "p": -0.1}])), "ops[0].p: -0.1"),
        (image(json!([{"op": "gaussian_blur", "kernel": 4}])), "ops[0].kernel: 4 is not an odd number"),
        (image(json!([{"op": "gaussian_blur", "kernel": 1025}])), "ops[0].kernel: 1025"),
        (image(json!([{"op": "gaussian_blur", "kernel": 3, "sigma": [0, 1]}])), "ops[0].sigma: [0, 1]"),
        (image(json!([{"op": "gaussian_blur", "kernel": 3, "p": 2}])), "ops[0].p: 2"),
        (image(json!([{"op": "solarize", "threshold": 256}])), "ops[0].threshold: 256 is not in 0..=255"),
        (image(json!([{"op": "solarize"}])), "ops[0].threshold: it is missing"),
        (image(json!([{"op": "posterize", "bits": 9}])), "ops[0].bits: 9"),
        (image(json!([{"op": "posterize", "bits": 2.5}])), "ops[0].bits: invalid type"),
        (image(json!([{"op": "equalize", "p": 1.5}])), "ops[0].p: 1.5"),
        (image(json!([{"op": "autocontrast", "p": -1}])), "ops[0].p: -1"),
        (image(json!([{"op": "sharpness", "factor": -1}])), "ops[0].factor: -1"),
        (image(json!([{"op": "affine", "degrees": [9, -9]}])), "ops[0].degrees: [9, -9]"),
        (image(json!([{"op": "affine", "degrees": [0, 0], "translate": [0, 2]}])), "ops[0].translate: 2"),
        (image(json!([{"op": "affine", "degrees": [0, 0], "scale": [0, 2]}])), "ops[0].scale: [0, 2]"),
        (
            image(json!([{"op": "affine", "degrees": [0, 0], "shear": [0, 90, 0, 0]}])),
            "ops[0].shear: [0, 90]",
        ),
        (
            image(json!([{"op": "affine", "degrees": [0, 0], "interpolation": "bicubic"}])),
            "ops[0].interpolation: unknown variant `bicubic`",
        ),
        (image(json!([{"op": "rand_augment", "magnitude": 31}])), "ops[0].magnitude: 31 is not below"),
        (image(json!([{"op": "rand_augment", "n": 65}])), "ops[0].n: 65"),
        (image(json!([{"op": "trivial_augment", "bins": 1}])), "ops[0].bins: 1 is not in 2..=65536"),
        (image(json!([{"op": "perspective", "distortion": 1.5}])), "ops[0].distortion: 1.5"),
        (image(json!([{"op": "perspective", "p": 2}])), "ops[0].p: 2"),
        (image(json!([{"op": "auto_augment", "policy": "mnist"}])), "ops[0].policy: unknown variant `mnist`"),
        (image(json!([{"op": "aug_mix", "severity": 11}])), "ops[0].severity: 11 is not in 1..=10"),
        (image(json!([{"op": "aug_mix", "width": 0}])), "ops[0].width: 0"),
        (image(json!([{"op": "aug_mix", "depth": 17}])), "ops[0].depth: 17"),
        (image(json!([{"op": "aug_mix", "alpha": 0}])), "ops[0].alpha: 0"),
        (image(json!([{"op": "random_erasing", "value": -1}])), "ops[0].value: -1"),
        (image(json!([{"op": "delay", "seconds": -1}])), "ops[0].seconds: -1"),
        (image(json!([normalize, normalize])), "ops[1]: `normalize` stands there twice"),
        (image(json!([normalize, {"op": "flip"}])), "ops[1]: `flip` cannot follow `normalize`"),
        (
            json!([{"field": "j", "decode": "image", "dtype": "i64"}]),
            "dtype: image is u8, f16, bf16 or f32, not i64",
        ),
        (
            json!([{"field": "j", "decode": "image", "dtype": "u8", "ops": [normalize]}]),
            "f16, bf16 or f32 after `normalize`, not u8",
        ),
        (json!([{"field": "j", "decode": "label", "dtype": "bf16"}]), "label is an integer type"),
        (json!([{"field": "j", "decode": {"kind": "image", "max_pixels": 0}}]), "decode.max_pixels: 0"),
        (json!([{"field": "j", "decode": {"kind": "npy", "shape": [2, 0]}}]), "decode.shape"),
        (json!([{"field": "j", "decode": {"kind": "npy", "shape": [u64::MAX, 2]}}]), "decode.shape"),
        (json!([{"field": "j", "decode": {"kind": "text", "mode": "rgb"}}]), "decode.mode: there is no such"),
    ] {
        let message = fault(recipe);
        assert!(
            message.contains(expected) && !message.contains("faults"),
            "{expected}\nis not all of\n{message}"
        );
    }
}

#[test]
fn mixing_comes_last_and_knows_its_columns() {
    let images = json!({"field": "jpg", "decode": "image", "ops": [{"op": "center_crop", "size": 9}]});
    let labels = json!({"field": "cls", "decode": "label"});
    let mixed = |op: Value| json!([images, labels, op]);
    let mixup = json!({"op": "mixup", "image": "jpg", "label": "cls", "classes": 10});
    let with = |key: &str, value: Value| {
        let mut op = mixup.clone();
        op[key] = value;
        mixed(op)
    };
    let recipe = Recipe::from_value(mixed(mixup.clone())).unwrap();
    assert!(recipe.ops[0].is_of_batches() && recipe.functions().count() == 0);
    let back = Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap();
    assert_eq!((&back, back.fingerprint()), (&recipe, recipe.fingerprint()));
    for (recipe, fault) in [
        (with("classes", json!(0)), "recipe[2].classes: 0 is not in 1..="),
        (with("alpha", json!(0)), "recipe[2].alpha: 0"),
        (with("p", json!(1.5)), "recipe[2].p: 1.5"),
        (with("image", json!("png")), "recipe[2].image: `png` is no column of images"),
        (with("label", json!("jpg")), "recipe[2].label: `jpg` is no column of labels"),
        (with("share", json!(1)), "recipe[2].share: there is no such parameter"),
        (json!([images, labels, mixup, mixup]), "recipe[2].op: `mixup` mixes what everything else has made"),
        (json!([{"field": "jpg", "decode": "image"}, labels, mixup]), "recipe[2].image: `jpg`"),
        (
            json!([images, {"field": "cls", "decode": "label", "ops": [{"op": "map", "function": "a:b"}]}, mixup]),
            "recipe[2].label: `cls` is what a function makes",
        ),
    ] {
        let error = Recipe::from_value(recipe).unwrap_err();
        assert!(error.message().contains(fault), "{error}");
    }
}

#[test]
fn erasing_and_delay_may_follow_normalize_and_floats_need_none() {
    let recipe = json!([
        {"field": "jpg", "decode": "image", "dtype": "bf16", "ops": [
            {"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]},
            {"op": "random_erasing", "value": -1},
            {"op": "delay", "seconds": 0.1}
        ]},
        {"field": "png", "decode": {"kind": "image", "mode": "gray"}, "dtype": "f16"},
        {"field": "cls", "decode": "label", "dtype": "u8", "ops": [{"op": "delay", "seconds": 0.1}]},
    ]);
    Recipe::from_value(recipe).unwrap();
}

#[test]
fn ops_that_blur_bend_and_recolor_are_read_as_python_writes_them() {
    let text = include_str!("../../../../fuzz/seeds/recipe/augment.json");
    let recipe = Recipe::from_json(text).unwrap();
    assert_eq!(recipe.fields[0].ops.len(), 14);
    let bare = r#"[{"field": "jpg;png", "decode": "image", "ops": [
        {"op": "gaussian_blur", "kernel": 9}, {"op": "affine", "degrees": [-15, 15]}, "rand_augment"]}]"#;
    let bare = Recipe::from_json(bare).unwrap();
    for (at, op) in [0, 7, 11].into_iter().zip(&bare.fields[0].ops) {
        assert_eq!(&recipe.fields[0].ops[at], op);
    }
}

#[test]
fn the_size_of_the_result_is_known_when_it_does_not_depend_on_the_image() {
    for (ops, expected) in [
        (json!([]), None),
        (json!([{"op": "resize", "size": 256}]), None),
        (json!([{"op": "resize", "size": [20, 30]}]), Some((20, 30))),
        (json!([{"op": "resize", "size": 256}, {"op": "center_crop", "size": 224}]), Some((224, 224))),
        (json!([{"op": "random_crop", "size": [8, 9]}, {"op": "flip"}]), Some((8, 9))),
        (json!([{"op": "random_resized_crop", "size": 5}, {"op": "resize", "size": 9}]), None),
        (
            json!([{"op": "random_resized_crop", "size": 5}, {"op": "pad", "border": [1, 2, 3, 4]}]),
            Some((11, 9)),
        ),
        (json!([{"op": "pad", "border": [1, 2, 3, 4]}]), None),
    ] {
        let recipe = json!([{"field": "jpg", "decode": "image", "ops": ops}]);
        assert_eq!(Recipe::from_value(recipe).unwrap().fields[0].fixed_image_size(), expected);
    }
    let label = Recipe::from_value(json!([{"field": "cls", "decode": "label"}])).unwrap();
    assert_eq!(label.fields[0].fixed_image_size(), None);
}

#[test]
fn text_that_is_no_recipe_says_what_is_missing() {
    for (error, expected) in [
        (Recipe::from_json("{").unwrap_err(), "the text is not JSON"),
        (Recipe::from_toml("[[").unwrap_err(), "the text is not TOML"),
        (Recipe::from_toml("a = 1").unwrap_err(), "the text has no `recipe`"),
        (Recipe::from_toml_at("a = 1", "a.b").unwrap_err(), "the text has no `a.b`"),
        (Recipe::from_toml("recipe = 1").unwrap_err(), "it is not a list of fields"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains(expected), "{error}");
    }
}
