import { existsSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { MillraceError } from '../errors/index.ts'
import { nearestName, placeOfError } from '../kit/index.ts'

/**
 * Why an environment's module could not be loaded, for its author: the error, where in the author's files it came from, and
 * what to do about it. The stack stays in `cause`. An error of ours keeps its code, which says what is wrong.
 */
export function loadFailure(url: URL, thrown: unknown): MillraceError {
  const path = fileURLToPath(url)
  const { code, rawMessage, data } = MillraceError.from(thrown, 'env_load_failed')
  const place = placeOfError(thrown, url)
  const at = place ? ` (at ${place})` : ''
  const hint = hintFor(thrown, path, place)
  return new MillraceError(code, `${path} could not be loaded: ${rawMessage}${at}${hint ? `. ${hint}` : ''}`, {
    data: { path, ...(place && { place }), ...data },
    cause: thrown,
  })
}

function hintFor(thrown: unknown, path: string, place: string | undefined): string | undefined {
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined
  switch (code) {
    case 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX':
      return 'Node runs TypeScript by leaving out the types, so enums, namespaces and parameter properties do not work: use plain JavaScript for them, such as a constant object'
    case 'ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING':
      return 'Node runs no TypeScript from node_modules: the package must contain JavaScript, or copy its environment out of there'
    case 'ERR_UNKNOWN_FILE_EXTENSION':
      return 'An environment is a module in a .ts, .js or .mjs file'
    case 'ERR_MODULE_NOT_FOUND':
      return missingModuleHint(thrown instanceof Error ? thrown.message : '')
    default:
      if (thrown instanceof SyntaxError && !place) return `\`node --check ${path}\` shows the place`
      return 'Correct that and run it again; --debug (`cause` of the error) shows the whole stack'
  }
}

function missingModuleHint(message: string): string | undefined {
  const missing = /^Cannot find module '([^']+)'/.exec(message)?.[1]
  const extension = missing && ['.ts', '.js', '.mjs'].find((each) => existsSync(missing + each))
  if (extension) return `Imports need the file's extension: write ${extension} at the end`
  // TypeScript's own habit, for a compiler that would write that file.
  const source = missing?.replace(/js$/, 'ts')
  if (source && source !== missing && existsSync(source)) {
    return `Imports name the file that is there: write ${basename(source)}`
  }
  const packageName = /^Cannot find package '([^']+)'/.exec(message)?.[1]
  if (packageName === undefined) return undefined
  // A package with a similar name could be a stranger's code, so it is not suggested for installation. Names that begin
  // with `millrace-` are no misspellings: such packages go with Millrace.
  if (!packageName.startsWith('millrace-') && nearestName(packageName, ['millrace'])) return `Did you mean 'millrace'?`
  return `Install it where the environment is: npm install ${packageName}`
}
