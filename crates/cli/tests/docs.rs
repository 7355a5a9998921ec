//! The pages that describe recipes and pipelines: their examples are read by the product, and no op is left out.

mod harness;

use forebay_core::recipe::{AudioOp, Op, Recipe};
use harness::Harness;

const RECIPES: &str = include_str!("../../../docs/reference/recipe.md");
const AUDIO: &str = include_str!("../../../docs/reference/recipe-audio.md");
const GUIDE: &str = include_str!("../../../docs/guide/command-line.md");

/// The code blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let parts = page.split(&opening).skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn recipes_in_toml_and_json_are_sound_and_the_same() {
    let toml = blocks(RECIPES, "toml");
    let json = blocks(RECIPES, "json");
    assert_eq!((toml.len(), json.len()), (7, 1));
    let first = Recipe::from_toml(&toml[0]).unwrap();
    assert_eq!(first.fingerprint(), Recipe::from_json(&json[0]).unwrap().fingerprint());
    assert_eq!(Recipe::from_toml(&toml[1]).unwrap().fields[0].fixed_clip(), Some((16, 112, 112)));
    Recipe::from_toml(&toml[2]).unwrap();
    let audio = (blocks(AUDIO, "toml"), blocks(AUDIO, "json"));
    let first_audio = Recipe::from_toml(&audio.0[0]).unwrap();
    assert_eq!(first_audio.fingerprint(), Recipe::from_json(&audio.1[0]).unwrap().fingerprint());
    let all = format!("[[recipe]]\nfield = 'wav'\ndecode = 'audio'\n{}", audio.0[1]);
    assert_eq!(Recipe::from_toml(&all).unwrap().fields[0].ops.len(), 12);
    let ops =
        Recipe::from_toml(&format!("[[recipe]]\nfield = 'jpg'\ndecode = 'image'\n{}", toml[3])).unwrap();
    assert_eq!(ops.fields[0].ops.len(), 22);
    let called =
        Recipe::from_toml(&format!("[[recipe]]\nfield = 'json'\ndecode = 'json'\n{}", toml[5])).unwrap();
    assert_eq!(called.functions().count(), 1);
    assert_eq!(Recipe::from_toml(&toml[4]).unwrap().followed(2), Some(0));
    let crop = "ops = [{ op = 'center_crop', size = 9 }]\n[[recipe]]\nfield = 'cls'\ndecode = 'label'";
    let mixed = format!("[[recipe]]\nfield = 'jpg'\ndecode = 'image'\n{crop}\n{}", toml[6]);
    assert_eq!(Recipe::from_toml(&mixed).unwrap().ops[0].name(), "mixup_or_cutmix");
}

#[test]
fn every_op_and_decoder_is_described_with_its_defaults() {
    for op in Op::NAMES {
        assert!(RECIPES.contains(&format!("| `{op}` |")), "{op} is missing");
    }
    for op in AudioOp::NAMES {
        assert!(AUDIO.contains(&format!("| `{op}` |")), "{op} is missing");
    }
    for kind in ["image", "video", "audio", "npy", "label", "json", "text", "tokens", "bytes", "boxes"] {
        assert!(RECIPES.contains(&format!("| `{kind}` |")), "{kind} is missing");
    }
    // Each op with its required parameters only; what is filled in must be said.
    let bare = "[{\"field\": \"a\", \"decode\": \"image\", \"ops\": [{\"op\": \"resize\", \"size\": 9},
        {\"op\": \"random_crop\", \"size\": 9}, {\"op\": \"random_resized_crop\", \"size\": 9}, {\"op\": \"flip\"},
        {\"op\": \"pad\", \"border\": [9, 9, 9, 9]}, {\"op\": \"color_jitter\"}, {\"op\": \"grayscale\"},
        {\"op\": \"gaussian_blur\", \"kernel\": 9}, {\"op\": \"solarize\", \"threshold\": 9}, {\"op\": \"equalize\"},
        {\"op\": \"posterize\", \"bits\": 8}, {\"op\": \"sharpness\", \"factor\": 9}, {\"op\": \"autocontrast\"},
        {\"op\": \"affine\", \"degrees\": [9, 9]}, {\"op\": \"rand_augment\"}, {\"op\": \"trivial_augment\"},
        {\"op\": \"perspective\"}, {\"op\": \"auto_augment\"}, {\"op\": \"aug_mix\"},
        {\"op\": \"random_erasing\"}]}]";
    let recipe: serde_json::Value =
        serde_json::from_str(&Recipe::from_json(bare).unwrap().to_json()).unwrap();
    for op in recipe[0]["ops"].as_array().unwrap() {
        for (name, value) in op.as_object().unwrap() {
            let given = ["op", "bits", "degrees"].contains(&name.as_str())
                || *value == 9
                || *value == serde_json::json!([9, 9, 9, 9]);
            let text = value.to_string().replace('"', "").replace(',', ", ");
            let texts = [text.trim_end_matches(".0").to_owned(), text];
            let said = texts.iter().any(|text| RECIPES.contains(&format!("`{text}`")));
            assert!(given || said, "{op}: the default of {name} is not on the page");
        }
    }
    let pixels = recipe[0]["decode"]["max_pixels"].to_string();
    assert!(RECIPES.contains(&format!("`{pixels}`")));
}

#[test]
fn the_pipeline_of_the_guide_is_sound_and_every_setting_is_described() {
    let harness = Harness::new();
    harness.write("pipeline.toml", &blocks(GUIDE, "toml")[0]);
    let object = harness.json(&["config", "show", "--pipeline", "pipeline.toml"]);
    for setting in object["loader"].as_object().unwrap().keys() {
        assert!(GUIDE.contains(&format!("`{setting}`")), "{setting} is missing");
    }
}
