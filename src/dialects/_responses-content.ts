import type { ContentPart, Json, JsonObject } from '../schema/index.ts'
import type { AssistantDraft } from './_assistant-draft.ts'
import { contentOf, imagePart } from './_content.ts'
import { isAbsent, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import { anyText, optionalText, typedObject } from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** Reads the content of a user, a system or a tool. `at` is its place in the body. */
export function readContent(
  content: Json | undefined,
  at: string,
  untranslatable: Untranslatable,
): string | readonly ContentPart[] {
  if (typeof content === 'string') return content
  return contentOf(partsOf(content, at).map((part, index) => readPart(part, `${at}[${index}]`, untranslatable)))
}

/** Adds the content of the model's own message. Servers split it into any number of parts; together they are its text. */
export function readSpoken(
  draft: AssistantDraft,
  content: Json | undefined,
  at: string,
  untranslatable: Untranslatable,
): void {
  if (typeof content === 'string') {
    draft.text += content
    return
  }
  const parts = partsOf(content, at)
  for (let index = 0; index < parts.length; index += 1) {
    const place = `${at}[${index}]`
    const part = typedObject(parts[index], place)
    if (isText(part.type)) draft.text += anyText(part, 'text', `${place}.`)
    else if (part.type === 'refusal') draft.refusal += anyText(part, 'refusal', `${place}.`)
    else {
      untranslatable.add(`${place}.type ${part.type}`)
      draft.addOther('responses', part)
    }
  }
}

function partsOf(content: Json | undefined, at: string): readonly Json[] {
  if (!isList(content)) throw rejected(at, 'must be a string or a list of parts')
  return content
}

function readPart(value: Json, at: string, untranslatable: Untranslatable): ContentPart {
  const part = typedObject(value, at)
  if (isText(part.type)) return { type: 'text', text: anyText(part, 'text', `${at}.`) }
  const image = part.type === 'input_image' ? readImage(part, at, untranslatable) : undefined
  if (image) return image
  if (part.type !== 'input_image') untranslatable.add(`${at}.type ${part.type}`)
  return { type: 'other', api: 'responses', value: part }
}

/** Reads an image. Undefined if only this API can show it: a file kept by the server, or a detail of its own. */
function readImage(part: JsonObject, at: string, untranslatable: Untranslatable): ContentPart | undefined {
  const { image_url: url, file_id: fileId } = part
  const detail = optionalText(part, 'detail', `${at}.`)
  if (typeof url === 'string') {
    const image = imagePart(url, detail)
    if (!image) untranslatable.add(`${at}.detail ${detail}`)
    return image
  }
  if (!isAbsent(url) || typeof fileId !== 'string') {
    throw rejected(`${at}.image_url`, 'must be a URL, as a string; or give a file_id instead')
  }
  untranslatable.add(`${at}.file_id`)
  return undefined
}

/** Whether a part is text. The type depends on the speaker; clients confuse the two, or use Chat's `text`. */
function isText(type: string): boolean {
  return type === 'input_text' || type === 'output_text' || type === 'text'
}
