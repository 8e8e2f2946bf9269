// Two people with the page in a real browser: `node browser.mjs ORDERS`, beside its node_modules.
//
// One starts a group, both say something, one edits nothing and leaves nothing out: what both
// pages show goes to the standard output, with every complaint of the browser.

import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const { page: address, people } = JSON.parse(process.argv[2]);
const browser = await puppeteer.launch({
  args: [...chromium.args.filter((one) => one !== "--single-process"), "--no-sandbox"],
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
const complaints = [];

async function enter({ token }) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("console", (said) => said.type() === "error" && complaints.push(said.text()));
  await page.goto(address, { waitUntil: "load" });
  await page.type("#token", token);
  await page.click("#enter");
  await page.waitForFunction(() => document.querySelector("#state").textContent === "here");
  return page;
}

const says = async (page, text) => {
  await page.type("#body", text);
  await page.keyboard.press("Enter");
};
const reads = (page, text) =>
  page.waitForFunction(
    (wanted) =>
      [...document.querySelectorAll("#entries .body")].some((one) => one.textContent === wanted),
    { timeout: 30_000 },
    text,
  );
const shows = (page) =>
  page.$$eval("#entries li", (items) => items.map((item) => item.textContent));

const [first, second] = [await enter(people[0]), await enter(people[1])];
await first.type("#others", people[1].name);
await first.click("#start");
await second.waitForSelector("#conversations button", { timeout: 30_000 });
await second.click("#conversations button");
await first.waitForSelector("#entries li", { timeout: 30_000 });
await says(first, "<b>hello</b>");
await reads(second, "<b>hello</b>");
await says(second, "who is there?");
await reads(first, "who is there?");
console.log(JSON.stringify({ shown: [await shows(first), await shows(second)], complaints }));
await browser.close();
