import { ownTools, twoSearches } from '../../../test/support/tools/catalogues.ts'
import {
  badArguments,
  describeCalls,
  left,
  repaired,
  unknown,
  untouched,
} from '../../../test/support/tools/sloppy-call.ts'
import { standardRepairs } from './repair-rules.ts'

const standard = { tools: ownTools, rules: standardRepairs }
const big = '12345678901234567890'

describeCalls('names of tools', standard, [
  [
    'natively, the name on the server instead of the prefixed one',
    ['fetch', '{"id":"7"}'],
    repaired('docs_fetch', { id: '7' }, 'server_route'),
    { tools: twoSearches },
  ],
  [
    'natively, a name that two servers have',
    ['search', '{"query":"x"}'],
    unknown('several are called so: web_search, docs_search.'),
    { tools: twoSearches },
  ],
  [
    'in a format with servers, the prefixed name',
    ['docs', 'docs_fetch', '{"id":"7"}'],
    repaired('docs_fetch', { id: '7' }, 'server_route'),
    { tools: twoSearches },
  ],
  [
    'the right server and its own name for the tool',
    ['docs', 'search', '{"query":"x"}'],
    untouched({ query: 'x' }),
    { tools: twoSearches },
  ],
  ['a tool of the environment, with some server named', ['tools', 'now', '{}'], repaired('now', {}, 'server_route')],
  [
    'a tool of the environment, with a server named that exists',
    ['docs', 'now', '{}'],
    repaired('now', {}, 'server_route'),
    { tools: [...twoSearches, ...ownTools] },
  ],
  [
    'a slip of the pen is named, not guessed',
    ['wether', '{"city":"Ghent"}'],
    unknown('Error: there is no tool named "wether". Did you mean weather? Tools: weather, tag, strict, now, save.'),
  ],
  [
    'a slip of the pen on a server',
    ['docs', 'serch', '{}'],
    unknown(
      'Error: there is no tool named "serch" on server "docs". Did you mean search (server "web") or search (server "docs")?',
    ),
    { tools: twoSearches },
  ],
  ['upper case is a slip of the pen, too', ['Weather', '{"city":"Ghent"}'], unknown('Did you mean weather?')],
  [
    'no tools at all',
    ['weather', '{}'],
    unknown('Error: there is no tool named "weather"; there are no tools at all.'),
    { tools: [] },
  ],
  ['a name out of all proportion', ['x'.repeat(5_000), '{}'], unknown(`"${'x'.repeat(100)}".`)],
  ['a name that every object has', ['constructor', '{}'], unknown('there is no tool named "constructor"')],
  [
    'without routing, the wrong server is an error',
    ['web', 'fetch', '{"id":"7"}'],
    unknown('there is no tool named "fetch" on server "web". Did you mean fetch (server "docs")?'),
    { tools: twoSearches, rules: { json: true } },
  ],
  [
    'an alias that a tool of the environment has for a name',
    ['now', '{}'],
    untouched({}),
    { rules: { toolAlias: [{ from: ['now'], to: 'weather' }] } },
  ],
  [
    'an alias that stands for something several servers have',
    ['find', '{"query":"x"}'],
    unknown('there is no tool named "search", but several are called so: web_search, docs_search'),
    { tools: twoSearches, rules: { ...standardRepairs, toolAlias: [{ from: ['find'], to: 'search' }] } },
  ],
])

describeCalls('arguments that are no JSON', standard, [
  ['a comma too many', ['weather', '{"city":"Ghent",}'], repaired('weather', { city: 'Ghent' }, 'json')],
  [
    'a comma too few',
    ['weather', '{"city":"Ghent" "days":2}'],
    repaired('weather', { city: 'Ghent', days: 2 }, 'json'),
  ],
  ['a bracket too few', ['weather', '{"city":"Ghent"'], repaired('weather', { city: 'Ghent' }, 'json')],
  ['a bracket too many', ['weather', '{"city":"Ghent"}}'], repaired('weather', { city: 'Ghent' }, 'json')],
  ['cut off in a string', ['weather', '{"city":"Ghe'], repaired('weather', { city: 'Ghe' }, 'json')],
  [
    'as Python writes it',
    ['weather', "{'city': 'Ghent', 'hourly': True}"],
    repaired('weather', { city: 'Ghent', hourly: true }, 'json'),
  ],
  [
    'as JavaScript writes it',
    ['weather', '{city: "Ghent", days: 2}'],
    repaired('weather', { city: 'Ghent', days: 2 }, 'json'),
  ],
  ['as a word processor writes it', ['weather', '{“city”: “Ghent”}'], repaired('weather', { city: 'Ghent' }, 'json')],
  ['with a comment', ['weather', '{"city":"Ghent" /* for now */}'], repaired('weather', { city: 'Ghent' }, 'json')],
  ['in a code block', ['weather', '```json\n{"city":"Ghent"}\n```'], repaired('weather', { city: 'Ghent' }, 'json')],
  [
    'with words before and after',
    ['weather', 'Sure: {"city":"Ghent"} will do.'],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
  [
    'with words around what is no JSON either',
    ['weather', "Sure! {city: 'Ghent'} will do."],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
  [
    'with the rest of a tag',
    ['weather', '{"city":"Ghent"}</arguments>'],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
  [
    'two objects: the first',
    ['weather', '{"city":"Ghent"}{"city":"Bruges"}'],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
  [
    'something in brackets before the object',
    ['weather', 'the {city} is {"city":"Ghent"}'],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
  [
    'quoted once too often',
    ['weather', JSON.stringify('{"city":"Ghent"}')],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
  ['line breaks in a string', ['save', '{"json":"a\nb\tc"}'], repaired('save', { json: 'a\nb\tc' }, 'json')],
  [
    'a pattern with single backslashes keeps them',
    ['save', String.raw`{"json":"\d+\.\w"}`],
    repaired('save', { json: String.raw`\d+\.\w` }, 'json'),
  ],
  [
    'an apostrophe with a backslash',
    ['save', String.raw`{"json":"it\'s"}`],
    repaired('save', { json: "it's" }, 'json'),
  ],
  [
    'other scripts, and an emoji',
    ['weather', "{'city': 'Gänt 根特 🏰'}"],
    repaired('weather', { city: 'Gänt 根特 🏰' }, 'json'),
  ],
  [
    'several things at once',
    ['weather', "{city: 'Ghent', 'days': '2', unit: null,}"],
    repaired('weather', { city: 'Ghent', days: 2 }, 'json', 'drop_nulls', 'coerce'),
  ],
  [
    'nothing but words',
    ['weather', 'Ghent'],
    badArguments(
      'Error: bad arguments for weather: not valid JSON',
      'Expected {"city": string, "unit"?: "celsius" | "Kelvin"',
      'Correct them and call it again.',
    ),
  ],
  ['an apostrophe that ends a string', ['save', "{'json': 'it's'}"], badArguments('not valid JSON')],
  ['quotes in a string, which may end anywhere', ['save', '{"json": "print("hi")"}'], badArguments('not valid JSON')],
  [
    'a list',
    ['weather', '[{"city":"Ghent"}]'],
    badArguments(
      'Error: bad arguments for weather: they are a list, and must be one JSON object with a name for each argument.',
    ),
  ],
  ['a string', ['weather', '"Ghent"'], badArguments('they are a string, and must be one JSON object')],
  ['a number', ['weather', '7'], badArguments('they are a number, and must be one JSON object')],
  [
    'the name that the model used is the one in the message',
    ['docs', 'fetch', '7'],
    badArguments('bad arguments for fetch: they are a number'),
    { tools: twoSearches },
  ],
  [
    'without the rule nothing is repaired',
    ['weather', '{"city":"Ghent",}'],
    badArguments('not valid JSON'),
    { rules: { serverRoute: true } },
  ],
  ['null', ['weather', 'null'], badArguments('they are null, and must be one JSON object')],
  ["Python's long strings", ['save', '{"json": """a"b"""}'], badArguments('not valid JSON')],
  [
    'a quote among the words',
    ['weather', 'the {city}" is {"city":"Ghent"}'],
    repaired('weather', { city: 'Ghent' }, 'json'),
  ],
])

describeCalls('values that do not fit', standard, [
  [
    'a number in quotes',
    ['weather', '{"city":"Ghent","days":"3"}'],
    repaired('weather', { city: 'Ghent', days: 3 }, 'coerce'),
  ],
  [
    'a decimal in quotes',
    ['weather', '{"city":"Ghent","threshold":" 1.5e1 "}'],
    repaired('weather', { city: 'Ghent', threshold: 15 }, 'coerce'),
  ],
  [
    'true in quotes',
    ['weather', '{"city":"Ghent","hourly":"True"}'],
    repaired('weather', { city: 'Ghent', hourly: true }, 'coerce'),
  ],
  [
    'a number for a string',
    ['weather', '{"city":"Ghent","zip":9000}'],
    repaired('weather', { city: 'Ghent', zip: '9000' }, 'coerce'),
  ],
  [
    'a choice in another case',
    ['weather', '{"city":"Ghent","unit":"kelvin "}'],
    repaired('weather', { city: 'Ghent', unit: 'Kelvin' }, 'coerce'),
  ],
  ['one item for a list', ['tag', '{"names":"red"}'], repaired('tag', { names: ['red'] }, 'coerce')],
  [
    'a list as text',
    ['tag', String.raw`{"names":"[\"red\",\"blue\"]"}`],
    repaired('tag', { names: ['red', 'blue'] }, 'coerce'),
  ],
  [
    'numbers in quotes in a list as text',
    ['tag', String.raw`{"names":[],"ids":"[\"1\",2]"}`],
    repaired('tag', { names: [], ids: [1, 2] }, 'coerce'),
  ],
  [
    'an object as text',
    ['tag', String.raw`{"names":[],"options":"{\"depth\":\"2\"}"}`],
    repaired('tag', { names: [], options: { depth: 2 } }, 'coerce'),
  ],
  [
    'a number in quotes where null may stand, too',
    ['tag', '{"names":[],"limit":"5"}'],
    repaired('tag', { names: [], limit: 5 }, 'coerce'),
  ],
  [
    'what a reference leads to',
    ['tag', '{"names":[],"place":{"lat":"51.05"}}'],
    repaired('tag', { names: [], place: { lat: 51.05 } }, 'coerce'),
  ],
  [
    'a null that has no place',
    ['weather', '{"city":"Ghent","days":null}'],
    repaired('weather', { city: 'Ghent' }, 'drop_nulls'),
  ],
  [
    'a null of a name that is not known',
    ['strict', '{"a":"x","b":null}'],
    repaired('strict', { a: 'x' }, 'drop_nulls'),
  ],
  [
    'a parameter that every object has',
    ['strict', '{"a":"x","constructor":"4"}'],
    repaired('strict', { a: 'x', constructor: 4 }, 'coerce'),
  ],
  [
    'a code with a leading zero is no number',
    ['weather', '{"city":"Ghent","days":"007"}'],
    left({ city: 'Ghent', days: '007' }),
  ],
  ['half a day is no integer', ['weather', '{"city":"Ghent","days":"2.5"}'], left({ city: 'Ghent', days: '2.5' })],
  ['a number in words', ['weather', '{"city":"Ghent","days":"three"}'], left({ city: 'Ghent', days: 'three' })],
  ['yes is not true', ['weather', '{"city":"Ghent","hourly":"yes"}'], left({ city: 'Ghent', hourly: 'yes' })],
  ['one is not true', ['weather', '{"city":"Ghent","hourly":1}'], left({ city: 'Ghent', hourly: 1 })],
  [
    'an integer that a double cannot hold, in quotes',
    ['weather', `{"city":"Ghent","days":"${big}"}`],
    left({ city: 'Ghent', days: big }),
  ],
  [
    'an integer that a double cannot hold, for a string',
    ['weather', `{"city":"Ghent","zip":${big}}`],
    badArguments(`zip: the number ${big} cannot be passed on exactly; send it as a string`),
  ],
  [
    'an integer that a double cannot hold, where anything may stand, in broken JSON',
    ['tag', `{"names":[],"any":{"ids":[1,${big}]},}`],
    badArguments(`any.ids[1]: the number ${big} cannot be passed on exactly`),
  ],
  [
    'an integer that a double cannot hold, in an object as text',
    ['tag', `{"names":[],"options":"{\\"depth\\":${big}}"}`],
    left({ names: [], options: `{"depth":${big}}` }),
  ],
  ['a version that is not 1.1', ['weather', '{"city":"Ghent","zip":1.10}'], left({ city: 'Ghent', zip: 1.1 })],
  [
    'items with commas between them may be one or several',
    ['tag', '{"names":"red, blue"}'],
    left({ names: 'red, blue' }),
  ],
  ['one number, or a list of one', ['tag', '{"names":[],"either":"5"}'], left({ names: [], either: '5' })],
  ['a choice that is none', ['weather', '{"city":"Ghent","unit":"kelvins"}'], left({ city: 'Ghent', unit: 'kelvins' })],
  ['out of range, for the tool to say', ['weather', '{"city":"Ghent","days":0}'], left({ city: 'Ghent', days: 0 })],
  ['a name that is not known', ['strict', '{"a":"x","b":1}'], left({ a: 'x', b: 1 })],
  ['a list for a single value', ['weather', '{"city":["Ghent"]}'], left({ city: ['Ghent'] })],
  ['a parameter that is missing', ['weather', '{}'], left({})],
  ['a list as text that is none', ['tag', `{"names":"['red']"}`], left({ names: "['red']" })],
  [
    'a null of a name that every object has',
    ['strict', '{"a":"x","toString":null}'],
    repaired('strict', { a: 'x' }, 'drop_nulls'),
  ],
  [
    'a parameter of the tool is not renamed, though another is missing',
    ['save', '{"path":"y"}'],
    left({ path: 'y' }),
    { rules: { ...standardRepairs, parameters: [{ tool: 'save', rename: [{ from: ['path'], to: 'json' }] }] } },
  ],
  [
    'a default is not for what need not be there, though something else is wrong',
    ['save', '{"json":7}'],
    repaired('save', { json: '7' }, 'coerce'),
    { rules: { ...standardRepairs, parameters: [{ tool: 'save', defaults: { path: 'y' } }] } },
  ],
])

describeCalls('calls that are right', standard, [
  ['digits that are a string', ['weather', '{"city":"Ghent","zip":"9000"}'], untouched({ city: 'Ghent', zip: '9000' })],
  ['a string that holds JSON', ['save', String.raw`{"json":"{\"a\":1}"}`], untouched({ json: '{"a":1}' })],
  ['a string that holds broken JSON', ['save', String.raw`{"json":"{a:1,}"}`], untouched({ json: '{a:1,}' })],
  ['a null that has a place', ['weather', '{"city":"Ghent","note":null}'], untouched({ city: 'Ghent', note: null })],
  ['a null in an alternative', ['tag', '{"names":[],"limit":null}'], untouched({ names: [], limit: null })],
  ['a null where anything may stand', ['tag', '{"names":[],"any":null}'], untouched({ names: [], any: null })],
  [
    'a null of a name that nobody forbids',
    ['weather', '{"city":"Ghent","extra":null}'],
    untouched({ city: 'Ghent', extra: null }),
  ],
  [
    'an integer written as a decimal',
    ['weather', '{"city":"Ghent","days":3.0}'],
    untouched({ city: 'Ghent', days: 3 }),
  ],
  [
    'a big integer that a double holds',
    ['tag', '{"names":[],"any":[9007199254740992,1e300]}'],
    untouched({ names: [], any: [9007199254740992, 1e300] }),
  ],
  [
    'a prototype for a name',
    ['weather', '{"city":"Ghent","__proto__":{"days":"3"}}'],
    untouched(JSON.parse('{"city":"Ghent","__proto__":{"days":"3"}}')),
  ],
  ['other scripts', ['weather', '{"city":"北京 \\ud83c\\udff0"}'], untouched({ city: '北京 🏰' })],
  [
    'a parameter that a rule renames, on a tool that has it',
    ['save', '{"json":"x","path":"y"}'],
    untouched({ json: 'x', path: 'y' }),
    { rules: { ...standardRepairs, parameters: [{ tool: 'save', rename: [{ from: ['path'], to: 'json' }] }] } },
  ],
  [
    'a default for a parameter that need not be there',
    ['save', '{"json":"x"}'],
    untouched({ json: 'x' }),
    { rules: { ...standardRepairs, parameters: [{ tool: 'save', defaults: { path: 'y' } }] } },
  ],
  ['nothing for a tool without parameters', ['now', ''], untouched({})],
  ['space for a tool without parameters', ['now', ' \n'], untouched({})],
  ['an empty object', ['now', '{}'], untouched({})],
  ['an empty string', ['weather', '{"city":""}'], untouched({ city: '' })],
  ['a string that says true', ['weather', '{"city":"true"}'], untouched({ city: 'true' })],
  ['half an emoji', ['weather', '{"city":"\\ud83c"}'], untouched({ city: '\ud83c' })],
])
