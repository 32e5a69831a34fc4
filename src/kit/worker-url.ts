import { extname } from 'node:path'

/**
 * The address of a module beside the caller's, for `new Worker`. The compiler rewrites `.ts` in imports but not in
 * `new URL(...)`, so the extension is taken from the file that asks: `.ts` in the sources, `.js` in the build.
 */
export function workerUrl(meta: ImportMeta, name: string): URL {
  return new URL(name + extname(meta.filename), meta.url)
}
