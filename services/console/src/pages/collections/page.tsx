/** *Collections*: all of them, or one. */

import { place } from "../../router.js";
import { CollectionList } from "./list.js";
import { CollectionView } from "./detail.js";

export default function CollectionsPage() {
  const [, name] = place.value.page.split("/");
  return name === undefined ? <CollectionList /> : <CollectionView key={name} name={decodeURIComponent(name)} />;
}
