//! The second contract of a decorated tier: each call of [`crate::Tree`] goes through the decorator too.

/// Gives a decorator directories and links where the tier below has them. The decorator says what
/// happens around a call by `around(action, key, call)`.
macro_rules! decorate_tree {
    ($decorator:ident) => {
        impl<T: $crate::Tier> $decorator<T> {
            fn in_tree<R>(
                &self,
                action: $crate::Action,
                key: &$crate::Key,
                call: impl FnOnce(&dyn $crate::Tree) -> Result<R, $crate::TierError>,
            ) -> Result<R, $crate::TierError> {
                self.around(action, key, || match self.tier.tree() {
                    Some(tree) => call(tree),
                    None => Err($crate::TierError::Unsupported { action, path: key.to_string() }),
                })
            }
        }

        impl<T: $crate::Tier> $crate::Tree for $decorator<T> {
            fn directory(
                &self,
                key: &$crate::Key,
            ) -> Result<$crate::DirectoryMeta, $crate::TierError> {
                self.in_tree($crate::Action::Directory, key, |tree| tree.directory(key))
            }
            fn make_directory(&self, key: &$crate::Key) -> Result<(), $crate::TierError> {
                self.in_tree($crate::Action::MakeDirectory, key, |tree| tree.make_directory(key))
            }
            fn set_directory(
                &self,
                key: &$crate::Key,
                attributes: $crate::Attributes,
            ) -> Result<(), $crate::TierError> {
                let action = $crate::Action::Directory;
                self.in_tree(action, key, |tree| tree.set_directory(key, attributes))
            }
            fn remove_directory(&self, key: &$crate::Key) -> Result<(), $crate::TierError> {
                self.in_tree($crate::Action::Delete, key, |tree| tree.remove_directory(key))
            }
            fn link(&self, key: &$crate::Key) -> Result<Vec<u8>, $crate::TierError> {
                self.in_tree($crate::Action::ReadLink, key, |tree| tree.link(key))
            }
            fn make_link(&self, key: &$crate::Key, target: &[u8]) -> Result<(), $crate::TierError> {
                self.in_tree($crate::Action::MakeLink, key, |tree| tree.make_link(key, target))
            }
            fn remove_link(&self, key: &$crate::Key) -> Result<(), $crate::TierError> {
                self.in_tree($crate::Action::Delete, key, |tree| tree.remove_link(key))
            }
        }
    };
}

pub(crate) use decorate_tree;
