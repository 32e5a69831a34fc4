import type * as Yaml from 'yaml'
import { MillraceError } from '../../errors/index.ts'
import { onFirstUse } from './files.ts'

const loadYaml = onFirstUse((load) => load('yaml') as typeof Yaml)

/** Throws `config_invalid`; `shown` is what the message calls the text. */
export function parseYaml(text: string, shown: string): unknown {
  const document = loadYaml().parseDocument(text, { merge: true })
  const [mistake] = document.errors
  if (mistake) throw notYaml(shown, mistake)
  try {
    // An empty file is an empty configuration.
    return document.toJS() ?? {}
  } catch (error) {
    // What `*name` stands for is looked up only here.
    throw notYaml(shown, error)
  }
}

function notYaml(shown: string, cause: unknown): MillraceError {
  const causeText = cause instanceof Error ? cause.message : String(cause)
  // The other lines of the message draw the place; only the first one is shown, without its last colon.
  const problem = `it is not YAML: ${causeText.split(/:?\n/, 1)[0] ?? ''}`
  return new MillraceError('config_invalid', `${shown}: ${problem}`, { cause })
}
