/** A project with more modules than this is followed no further: what is beside the environment comes first. */
const maxFiles = 500

/** Files that are followed, and what each of them imports, by their URLs. */
const imports = new Map<string, Set<string>>()

/** From now on, what this module imports is remembered, and what that imports, as far as it is no package. */
export function followImports(url: string): void {
  if (!imports.has(url) && imports.size < maxFiles) imports.set(url, new Set())
}

/** Called with every import as Node resolves it, which is once for each in a thread. */
export function noteImport(parentUrl: string | undefined, url: string): void {
  const known = parentUrl === undefined ? undefined : imports.get(parentUrl)
  if (!known || !url.startsWith('file:') || url.includes('/node_modules/')) return
  known.add(url)
  followImports(url)
}

/** A module that is followed and all that it imports, from near to far. */
export function importedFiles(url: string): string[] {
  const found = new Set([url])
  // A Set takes more while it is iterated.
  for (const each of found) for (const imported of imports.get(each) ?? []) found.add(imported)
  return [...found]
}
