import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { namedModelSchema, type ModelConfigInput, type NamedModelInput } from '../../inference/index.ts'
import { describeIssues } from '../../schema/index.ts'

// The file is checked but not transformed: defaults are filled in when a model is opened.
const fileSchema = z.record(z.string(), namedModelSchema)

/** Reads `--models`: an object of models by name. */
export async function readModelsFile(path: string, cwd: string): Promise<Readonly<Record<string, ModelConfigInput>>> {
  const content = await readJson(resolve(cwd, path), path)
  const checked = fileSchema.safeParse(content)
  if (!checked.success) {
    throw new MillraceError(
      'config_invalid',
      `${path}: ${describeIssues(checked.error.issues, content)}; expected { "name": { "backends": [{ "url": … }], … } }`,
    )
  }
  const models = content as Readonly<Record<string, NamedModelInput>>
  return Object.fromEntries(Object.entries(models).map(([name, model]) => [name, { ...model, name }]))
}

async function readJson(file: string, shown: string): Promise<unknown> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    throw new MillraceError('file_not_found', `cannot read the models file ${shown}; check the path after --models`, {
      cause: error,
    })
  }
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new MillraceError('config_invalid', `${shown} is not JSON: ${String(error)}; correct it and run again`, {
      cause: error,
    })
  }
}
