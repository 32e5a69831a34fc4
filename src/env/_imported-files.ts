/** The most files that are followed; those nearest to the environment come first. */
const maxFiles = 500

/** The files that are followed and the files that each of them imports, by their URLs. */
const imports = new Map<string, Set<string>>()

/** From now on, records what this module imports, directly and indirectly, except for packages. */
export function followImports(url: string): void {
  if (!imports.has(url) && imports.size < maxFiles) imports.set(url, new Set())
}

/** Called for every import that Node resolves, which happens once per thread. */
export function noteImport(parentUrl: string | undefined, url: string): void {
  const known = parentUrl === undefined ? undefined : imports.get(parentUrl)
  if (!known || !url.startsWith('file:') || url.includes('/node_modules/')) return
  known.add(url)
  followImports(url)
}

/** A followed module and all files that it imports, from near to far. */
export function importedFiles(url: string): string[] {
  const found = new Set([url])
  // A Set may grow while it is iterated.
  for (const each of found) for (const imported of imports.get(each) ?? []) found.add(imported)
  return [...found]
}
